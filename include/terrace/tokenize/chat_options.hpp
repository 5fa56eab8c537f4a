// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>

namespace terrace::tokenize {

struct chat_options {
  bool add_generation_prompt = true;
  std::optional<bool> thinking;  ///< given to a template as `enable_thinking` and `thinking`
  std::optional<std::time_t>
      now;  ///< for templates that print the date; the system clock without it
};

}  // namespace terrace::tokenize
