// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::runner {

/// SIZE on the command line: bytes, a share of what is free, or all of it.
class size_request {
 public:
  /// "64KiB", "1.5GiB", "25%", "all". Nothing for anything else, for shares above 100 % and for
  /// sizes of 0.
  [[nodiscard]] static std::optional<size_request> parse(std::string_view text);

  [[nodiscard]] static size_request all() { return size_request{0, 100}; }
  [[nodiscard]] bool is_share() const noexcept { return percent_ > 0; }
  /// `free_bytes` is what 100 % stands for.
  [[nodiscard]] std::uint64_t bytes(std::uint64_t free_bytes) const noexcept {
    return is_share() ? static_cast<std::uint64_t>(static_cast<double>(free_bytes) * percent_ / 100)
                      : bytes_;
  }

 private:
  size_request(std::uint64_t bytes, double percent) : bytes_{bytes}, percent_{percent} {}
  std::uint64_t bytes_;
  double percent_;
};

/// N or N% on the command line, for expert slots.
class slot_request {
 public:
  /// "12", "25%", "12.5%". Nothing for anything else and for shares above 100 %.
  [[nodiscard]] static std::optional<slot_request> parse(std::string_view text);

  /// A share is rounded down, so that it is never exceeded.
  [[nodiscard]] std::size_t slots(std::size_t experts) const noexcept;

 private:
  slot_request(std::size_t count, double percent) : count_{count}, percent_{percent} {}
  std::size_t count_;
  double percent_;  ///< negative: a count
};

/// PATH[:SIZE] on the command line. A part after the last colon that is no SIZE belongs to the
/// path.
struct sized_path {
  std::filesystem::path path;
  std::optional<size_request> size;
  [[nodiscard]] static sized_path parse(std::string_view text);
};

}  // namespace terrace::runner
