// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/prefetch/gate_lookahead.hpp>
#include <terrace/prefetch/none.hpp>
#include <terrace/prefetch/trace_markov.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace terrace::prefetch {

/// A prefetch policy chosen by name at run time, with its default tuning.
/// Errors: contract_error for a name not in `names`.
class any {
 public:
  static constexpr std::array<std::string_view, 3> names{"none", "gate_lookahead", "trace_markov"};

  struct options {
    std::string name{names.front()};
  };

  explicit any(options const& chosen) : policy_{make(chosen.name)} {}

  void observe(access const& seen) {
    std::visit([&](auto& policy) { policy.observe(seen); }, policy_);
  }
  void hint(lookahead const& ahead) {
    std::visit([&](auto& policy) { policy.hint(ahead); }, policy_);
  }
  [[nodiscard]] std::size_t suggest(std::span<block_id> out) {
    return std::visit([&](auto& policy) { return policy.suggest(out); }, policy_);
  }

 private:
  using choice = std::variant<none, gate_lookahead, trace_markov>;
  static_assert(std::variant_size_v<choice> == names.size());

  [[nodiscard]] static choice make(std::string_view name) {
    if (name == names[0]) { return none{}; }
    if (name == names[1]) { return gate_lookahead{gate_lookahead::options{}}; }
    if (name == names[2]) { return trace_markov{trace_markov::options{}}; }
    refuse_name("prefetch policy", name, names);
  }

  choice policy_;
};

static_assert(prefetch_policy<any>);

}  // namespace terrace::prefetch
