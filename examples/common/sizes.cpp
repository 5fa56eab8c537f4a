// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <terrace/core/units.hpp>

#include <charconv>

namespace terrace::runner {
namespace {

/// "25%" -> 25; at most 100 %.
std::optional<double> parse_percent(std::string_view text) {
  if (!text.ends_with('%')) { return std::nullopt; }
  double percent = 0;
  auto const* const last = text.data() + text.size() - 1;
  auto const [end, code] = std::from_chars(text.data(), last, percent);
  if (code != std::errc{} || end != last || !(percent >= 0 && percent <= 100)) {
    return std::nullopt;
  }
  return percent;
}

}  // namespace

std::optional<size_request> size_request::parse(std::string_view text) {
  if (text == "all") { return all(); }
  if (text.ends_with('%')) {
    auto const percent = parse_percent(text);
    if (!percent || *percent == 0) { return std::nullopt; }
    return size_request{0, *percent};
  }
  auto const bytes = parse_size(text);
  if (!bytes || *bytes == 0) { return std::nullopt; }
  return size_request{*bytes, 0};
}

std::optional<slot_request> slot_request::parse(std::string_view text) {
  if (text.ends_with('%')) {
    auto const percent = parse_percent(text);
    if (!percent) { return std::nullopt; }
    return slot_request{0, *percent};
  }
  std::size_t count = 0;
  auto const* const last = text.data() + text.size();
  auto const [end, code] = std::from_chars(text.data(), last, count);
  if (code != std::errc{} || end != last || text.empty()) { return std::nullopt; }
  return slot_request{count, -1};
}

std::size_t slot_request::slots(std::size_t experts) const noexcept {
  return percent_ < 0 ? count_
                      : static_cast<std::size_t>(static_cast<double>(experts) * percent_ / 100);
}

sized_path sized_path::parse(std::string_view text) {
  auto const colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    if (auto const size = size_request::parse(text.substr(colon + 1))) {
      return {.path = text.substr(0, colon), .size = size};
    }
  }
  return {.path = text, .size = std::nullopt};
}

}  // namespace terrace::runner
