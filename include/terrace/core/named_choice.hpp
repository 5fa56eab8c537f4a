// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// "lru, clock or pinned", for sentences that list what may be chosen.
[[nodiscard]] inline std::string list_of(std::span<std::string_view const> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 0) { text += i + 1 == names.size() ? " or " : ", "; }
    text += names[i];
  }
  return text;
}

/// Throws contract_error: `what` ("eviction policy") is not known under `name`; says which names
/// are.
[[noreturn]] inline void refuse_name(std::string_view what,
                                     std::string_view name,
                                     std::span<std::string_view const> names) {
  throw contract_error{"there is no " + std::string{what} + " named `" + std::string{name} +
                       "`; choose " + list_of(names)};
}

}  // namespace terrace
