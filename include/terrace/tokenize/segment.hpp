// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace terrace::tokenize {

/// A piece of a prompt that is encoded on its own. In a text piece what looks like a control token
/// is text.
struct segment {
  std::string text;
  bool control = false;
  bool operator==(segment const&) const = default;
};

/// The text of all pieces, for people.
[[nodiscard]] inline std::string join(std::span<segment const> pieces) {
  std::string text;
  for (auto const& one : pieces) { text += one.text; }
  return text;
}

}  // namespace terrace::tokenize
