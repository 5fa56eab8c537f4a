// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <array>
#include <string>
#include <string_view>

namespace terrace::runner {

/// Which runner takes which architecture.
struct family_entry {
  std::string_view architecture;
  std::string_view program;
};
inline constexpr std::array<family_entry, 5> family_table{{
    {"llama", "terrace-llama"},
    {"minimax-m2", "terrace-minimax"},
    {"deepseek2", "terrace-kimi"},
    {"kimi-k3", "terrace-kimi"},
    {"kimi-linear", "terrace-kimi"},
}};

/// Errors: not_supported, naming the runner that takes the model, when `program` does not.
inline void require_family(std::string const& model,
                           std::string const& architecture,
                           std::string_view program) {
  for (auto const& entry : family_table) {
    if (entry.architecture != architecture) { continue; }
    if (entry.program == program) { return; }
    throw not_supported{model + " is a model of architecture `" + architecture + "`; run it with " +
                        std::string{entry.program}};
  }
  throw not_supported{model + " is a model of architecture `" + architecture +
                      "`, which no runner of this version takes"};
}

}  // namespace terrace::runner
