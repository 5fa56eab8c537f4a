// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/evict/clock.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/evict/pinned.hpp>
#include <terrace/evict/s3_fifo.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace terrace::evict {

/// An eviction policy chosen by name at run time, with its default tuning.
/// Errors: contract_error for a name not in `names`; `oracle` is refused, for it needs the future.
class any {
 public:
  static constexpr std::array<std::string_view, 5> names{
      "lfu_decay", "lru", "clock", "s3_fifo", "pinned"};

  struct options {
    std::string name{names.front()};
  };

  explicit any(options const& chosen) : policy_{make(chosen.name)} {}

  void admit(block_id id, std::size_t bytes) {
    std::visit([&](auto& policy) { policy.admit(id, bytes); }, policy_);
  }
  void touch(block_id id) noexcept {
    std::visit([&](auto& policy) { policy.touch(id); }, policy_);
  }
  void forget(block_id id) noexcept {
    std::visit([&](auto& policy) { policy.forget(id); }, policy_);
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    return std::visit([&](auto& policy) { return policy.victim(may_leave); }, policy_);
  }
  void tick() noexcept {
    std::visit([](auto& policy) { policy.tick(); }, policy_);
  }

 private:
  using choice = std::variant<lfu_decay, lru, clock, s3_fifo, pinned>;
  static_assert(std::variant_size_v<choice> == names.size());

  template <std::size_t I = 0>
  [[nodiscard]] static choice make(std::string_view name) {
    if constexpr (I < names.size()) {
      if (name != names[I]) { return make<I + 1>(name); }
      using chosen = std::variant_alternative_t<I, choice>;
      return choice{std::in_place_index<I>, typename chosen::options{}};
    } else {
      if (name == "oracle") {
        throw contract_error{
            "the eviction policy `oracle` must know the future, which only terrace-replay does; "
            "choose " +
            list_of(names)};
      }
      refuse_name("eviction policy", name, names);
    }
  }

  choice policy_;
};

static_assert(eviction_policy<any>);

}  // namespace terrace::evict
