// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

inline constexpr std::uint64_t kib = 1024;
inline constexpr std::uint64_t mib = 1024 * kib;
inline constexpr std::uint64_t gib = 1024 * mib;

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value,
                                               std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

/// "512", "64KiB", "1.5GiB", "24 GiB" -> bytes; K, M, G, T alone mean the binary units. Nothing for
/// anything else.
[[nodiscard]] inline std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
  double value = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || !(value >= 0)) { return std::nullopt; }
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') { unit.remove_prefix(1); }
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    auto const power = std::string_view{"KMGT"}.find(unit.front());
    if (power == std::string_view::npos) { return std::nullopt; }
    for (std::size_t i = 0; i <= power; ++i) { scale *= 1024; }
    auto const rest = unit.substr(1);
    if (!rest.empty() && rest != "iB" && rest != "i") { return std::nullopt; }
  }
  double const bytes = value * scale;
  if (bytes >= 9.2e18) { return std::nullopt; }
  return static_cast<std::uint64_t>(bytes);
}

/// 1536 -> "1.50 KiB".
[[nodiscard]] inline std::string format_size(std::uint64_t bytes) {
  static constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace terrace
