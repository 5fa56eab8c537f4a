// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/units.hpp>
#include <terrace/observe/counters.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace terrace::observe {

namespace detail {

inline constexpr std::array<char const*, 12> report_columns{"tier",
                                                            "capacity",
                                                            "peak",
                                                            "hits",
                                                            "misses",
                                                            "hit rate",
                                                            "in",
                                                            "out",
                                                            "evicted",
                                                            "prefetched",
                                                            "stall",
                                                            "mode"};
using report_row = std::array<std::string, report_columns.size()>;

[[nodiscard]] inline std::string fixed(double value, int decimals, char const* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

[[nodiscard]] inline report_row row_of(tier_counters const& tier) {
  bool const asked = tier.hits + tier.misses != 0;
  std::string prefetched = "-";
  if (tier.prefetched != 0) {
    prefetched =
        std::to_string(tier.prefetched) + " (" + std::to_string(tier.prefetch_used) + " used)";
  }
  return {tier.name,
          tier.capacity_bytes == 0 ? "-" : format_size(tier.capacity_bytes),
          format_size(tier.peak_bytes),
          std::to_string(tier.hits),
          std::to_string(tier.misses),
          asked ? fixed(100 * tier.hit_rate(), 1, "%") : "-",
          format_size(tier.bytes_in),
          format_size(tier.bytes_out),
          std::to_string(tier.evictions),
          prefetched,
          fixed(tier.stall_s(), 3, "s"),
          tier.mode};
}

}  // namespace detail

/// The closing table: one line per tier, fast to slow, under a line of headings; numbers
/// right-aligned, with units. Ends with a newline.
[[nodiscard]] inline std::string report(std::span<tier_counters const> tiers) {
  std::vector<detail::report_row> rows(1);
  std::copy(detail::report_columns.begin(), detail::report_columns.end(), rows[0].begin());
  for (tier_counters const& tier : tiers) { rows.push_back(detail::row_of(tier)); }

  std::array<std::size_t, detail::report_columns.size()> width{};
  for (auto const& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) { width[i] = std::max(width[i], row[i].size()); }
  }
  std::string text;
  for (auto const& row : rows) {
    std::string line = row.front() + std::string(width[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i + 1 < row.size(); ++i) {
      line += "  " + std::string(width[i] - row[i].size(), ' ') + row[i];
    }
    line += "  " + row.back();
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace terrace::observe
