// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace terrace {

/// Base of everything terrace throws. `what()` is one sentence: what happened, to which file or
/// tensor, with which numbers, and what to do about it.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A caller broke a documented precondition.
class contract_error : public error {
 public:
  using error::error;
};

/// A model file, tokenizer file or trace is not what its format says. Never thrown for a failing
/// device.
class format_error : public error {
 public:
  using error::error;
};

/// The operating system or a device failed; `code()` is the errno value (0 when there is none).
class io_error : public error {
 public:
  io_error(std::string const& sentence, int code) : error{sentence}, code_{code} {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// A level cannot hold what it is asked to hold, even after evicting everything that may leave.
class out_of_capacity : public error {
 public:
  out_of_capacity(std::string const& sentence,
                  std::uint64_t needed_bytes,
                  std::uint64_t capacity_bytes)
      : error{sentence}, needed_bytes_{needed_bytes}, capacity_bytes_{capacity_bytes} {}
  [[nodiscard]] std::uint64_t needed_bytes() const noexcept { return needed_bytes_; }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }

 private:
  std::uint64_t needed_bytes_;
  std::uint64_t capacity_bytes_;
};

/// The option, type or feature exists in terrace but not in this build, chain or backend.
class not_supported : public error {
 public:
  using error::error;
};

/// A CUDA call failed; `code()` is the cudaError_t. What was there before the call still is.
class cuda_error : public error {
 public:
  cuda_error(std::string const& sentence, int code) : error{sentence}, code_{code} {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The device's context is lost (an illegal address, a failed launch): no later call on that device
/// can work in this process.
class device_lost : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// An asynchronous operation ended because somebody asked it to stop.
class operation_stopped : public error {
 public:
  using error::error;
};

namespace detail {
[[noreturn]] inline void assertion_failed(char const* expression, char const* file, int line) {
  throw contract_error{std::string{"internal check `"} + expression + "` failed at " + file + ":" +
                       std::to_string(line) +
                       "; please report this with the command that led here"};
}
}  // namespace detail
}  // namespace terrace

/// Internal invariant; active in every build because the checks are cheap beside the work they
/// guard.
#define TERRACE_ASSERT(expression)     \
  ((expression) ? static_cast<void>(0) \
                : ::terrace::detail::assertion_failed(#expression, __FILE__, __LINE__))
