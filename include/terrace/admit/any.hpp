// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/admit/always.hpp>
#include <terrace/admit/second_touch.hpp>
#include <terrace/concepts/admission_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/named_choice.hpp>

#include <array>
#include <string>
#include <string_view>
#include <variant>

namespace terrace::admit {

/// An admission policy chosen by name at run time, with its default tuning.
/// Errors: contract_error for a name not in `names`.
class any {
 public:
  static constexpr std::array<std::string_view, 2> names{"always", "second_touch"};

  struct options {
    std::string name{names.front()};
  };

  explicit any(options const& chosen) : policy_{make(chosen.name)} {}

  [[nodiscard]] bool admit(block_id id) {
    return std::visit([&](auto& policy) { return policy.admit(id); }, policy_);
  }

 private:
  using choice = std::variant<always, second_touch>;

  [[nodiscard]] static choice make(std::string_view name) {
    if (name == names[0]) { return always{}; }
    if (name == names[1]) { return second_touch{second_touch::options{}}; }
    refuse_name("admission policy", name, names);
  }

  choice policy_;
};

static_assert(admission_policy<any>);

}  // namespace terrace::admit
