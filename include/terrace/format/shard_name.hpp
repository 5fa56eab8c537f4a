// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::format {

/// "prefix-00002-of-00005.gguf" taken apart. `number` counts from 1.
struct shard_name {
  std::string prefix;
  std::uint32_t number = 0;
  std::uint32_t count = 0;
};

/// The parts of a file name of the form prefix-NNNNN-of-NNNNN + `extension`, or nothing.
[[nodiscard]] inline std::optional<shard_name> parse_shard_name(std::string_view file,
                                                                std::string_view extension) {
  constexpr std::size_t tail = std::string_view{"-00001-of-00005"}.size();
  if (file.size() < tail + extension.size() || !file.ends_with(extension)) { return std::nullopt; }
  file.remove_suffix(extension.size());
  std::string_view const numbers = file.substr(file.size() - tail);
  if (numbers[0] != '-' || numbers.substr(6, 4) != "-of-") { return std::nullopt; }
  std::uint32_t values[2] = {0, 0};
  for (int which = 0; which < 2; ++which) {
    for (char const digit : numbers.substr(which == 0 ? 1 : 10, 5)) {
      if (digit < '0' || digit > '9') { return std::nullopt; }
      values[which] = values[which] * 10 + static_cast<std::uint32_t>(digit - '0');
    }
  }
  if (values[0] == 0 || values[0] > values[1]) { return std::nullopt; }
  return shard_name{std::string{file.substr(0, file.size() - tail)}, values[0], values[1]};
}

/// File name of shard `number`, counted from 1.
[[nodiscard]] inline std::string shard_file_name(shard_name const& name,
                                                 std::uint32_t number,
                                                 char const* extension) {
  char tail[32];
  std::snprintf(tail, sizeof tail, "-%05u-of-%05u", number, name.count);
  return name.prefix + tail + extension;
}

}  // namespace terrace::format
