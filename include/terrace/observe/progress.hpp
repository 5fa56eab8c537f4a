// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/units.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace terrace::observe {

/// "1.20 GiB of 4.00 GiB, 600.00 MiB/s, 5 s left"; parts that are not known yet are left out.
[[nodiscard]] inline std::string bytes_progress(std::uint64_t done,
                                                std::uint64_t total,
                                                double elapsed_s) {
  std::string text = format_size(done);
  if (total != 0) { text += " of " + format_size(total); }
  if (done == 0 || !(elapsed_s > 0)) { return text; }
  double const rate = static_cast<double>(done) / elapsed_s;
  text += ", " + format_size(static_cast<std::uint64_t>(rate)) + "/s";
  if (total <= done) { return text; }
  double const left_s = static_cast<double>(total - done) / rate;
  return text + ", " +
         (left_s < 1e6 ? std::to_string(static_cast<std::uint64_t>(left_s + 0.999)) : "many") +
         " s left";
}

/// "12 tokens, 34.5 tokens/s".
[[nodiscard]] inline std::string tokens_progress(std::uint64_t done, double elapsed_s) {
  std::string text = std::to_string(done) + (done == 1 ? " token" : " tokens");
  if (done == 0 || !(elapsed_s > 0)) { return text; }
  char rate[48];
  std::snprintf(rate, sizeof rate, ", %.1f tokens/s", static_cast<double>(done) / elapsed_s);
  return text + rate;
}

/// One line that is rewritten in place, at most ten times a second, on a terminal; silent on
/// anything else.
///
/// The stream is borrowed. The line is wiped by `finish` or the destructor, so what is printed next
/// starts clean.
class progress {
 public:
  using clock = std::chrono::steady_clock;

  progress(std::FILE* stream, std::string label)
      : stream_{stream != nullptr && ::isatty(::fileno(stream)) == 1 ? stream : nullptr},
        label_{std::move(label)} {}
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;
  ~progress() { finish(); }

  [[nodiscard]] bool visible() const noexcept { return stream_ != nullptr; }
  void bytes(std::uint64_t done, std::uint64_t total) {
    if (due()) { show(bytes_progress(done, total, elapsed_s())); }
  }
  void tokens(std::uint64_t done) {
    if (due()) { show(tokens_progress(done, elapsed_s())); }
  }
  void finish() noexcept {
    if (shown_ == 0) { return; }
    std::fprintf(stream_, "\r%*s\r", static_cast<int>(shown_), "");
    std::fflush(stream_);
    shown_ = 0;
  }

 private:
  [[nodiscard]] double elapsed_s() const {
    return std::chrono::duration<double>(clock::now() - start_).count();
  }
  [[nodiscard]] bool due() noexcept {
    if (stream_ == nullptr) { return false; }
    auto const now = clock::now();
    if (shown_ != 0 && now - last_ < std::chrono::milliseconds{100}) { return false; }
    last_ = now;
    return true;
  }
  void show(std::string const& what) {
    std::string line = label_ + ": " + what;
    std::size_t const length = line.size();
    if (length < shown_) { line.append(shown_ - length, ' '); }
    std::fprintf(stream_, "\r%s", line.c_str());
    std::fflush(stream_);
    shown_ = length;
  }

  std::FILE* stream_;  ///< null when it is not a terminal
  std::string label_;
  clock::time_point start_ = clock::now();
  clock::time_point last_{};
  std::size_t shown_ = 0;  ///< characters on the line now
};

}  // namespace terrace::observe
