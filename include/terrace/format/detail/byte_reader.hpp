// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace terrace::format::detail {

static_assert(std::endian::native == std::endian::little,
              "terrace reads little-endian files on little-endian machines");

/// A cursor over a source: reads little-endian numbers and strings in order, through a window, and
/// refuses to pass the end (or `limit_bytes`, when that comes first). `what` in each call names the
/// thing being read for the error sentence.
class byte_reader {
 public:
  byte_reader(byte_source const& source, std::uint64_t limit_bytes)
      : source_{source}, end_{std::min(source.size_bytes(), limit_bytes)} {}

  [[nodiscard]] std::uint64_t position() const noexcept { return window_start_ + at_; }
  [[nodiscard]] std::uint64_t remaining() const noexcept { return end_ - position(); }

  template <class T>
  [[nodiscard]] T number(char const* what) {
    static_assert(std::is_arithmetic_v<T>);
    fill(sizeof(T), what);
    T value;
    std::memcpy(&value, window_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  /// u64 length, then that many bytes; at most `longest`.
  [[nodiscard]] std::string string(std::uint64_t longest, char const* what) {
    auto const length = number<std::uint64_t>(what);
    if (length > remaining()) {
      throw format_error{source_.name() + ": " + what + " at byte " +
                         std::to_string(position() - 8) + " claims a length of " +
                         std::to_string(length) + " but only " + std::to_string(remaining()) +
                         " bytes follow; the file is damaged or cut off, get it again"};
    }
    if (length > longest) {
      throw format_error{source_.name() + ": " + what + " at byte " +
                         std::to_string(position() - 8) + " has " + std::to_string(length) +
                         " bytes, more than the " + std::to_string(longest) + " that are allowed"};
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    take(std::as_writable_bytes(std::span{text}));
    return text;
  }

 private:
  static constexpr std::size_t window_bytes = 64 * 1024;

  void fill(std::size_t count, char const* what) {
    if (window_.size() - at_ >= count) { return; }
    if (remaining() < count && end_ < source_.size_bytes()) {
      throw format_error{source_.name() + ": the header goes on beyond byte " +
                         std::to_string(end_) +
                         ", longer than that of any model; the file is damaged or hostile"};
    }
    if (remaining() < count) {
      throw format_error{source_.name() + ": the file ends at byte " + std::to_string(end_) +
                         " inside " + what + "; it is cut off or damaged, get it again"};
    }
    load();
  }
  void load() {
    window_start_ = position();
    at_ = 0;
    window_.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(window_bytes, end_ - window_start_)));
    source_.read(window_start_, window_);
  }
  void take(std::span<std::byte> into) {
    while (!into.empty()) {
      if (at_ == window_.size()) { load(); }
      std::size_t const count = std::min(into.size(), window_.size() - at_);
      std::memcpy(into.data(), window_.data() + at_, count);
      at_ += count;
      into = into.subspan(count);
    }
  }

  byte_source const& source_;
  std::uint64_t end_;
  std::uint64_t window_start_ = 0;
  std::vector<std::byte> window_;
  std::size_t at_ = 0;
};

}  // namespace terrace::format::detail
