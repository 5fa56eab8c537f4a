// SPDX-License-Identifier: Apache-2.0
#pragma once

struct CUstream_st;

namespace terrace {

/// The queue an operation is ordered on. `stream_ref::host()` stands for the calling thread: work
/// on it is done, or its memory may be read, when the call returns. Borrowed; 8 bytes; no default,
/// because a hidden default stream is a bug.
class stream_ref {
 public:
  explicit constexpr stream_ref(CUstream_st* stream) noexcept : stream_{stream} {}
  [[nodiscard]] static constexpr stream_ref host() noexcept { return stream_ref{nullptr}; }
  [[nodiscard]] constexpr bool is_host() const noexcept { return stream_ == nullptr; }
  [[nodiscard]] constexpr CUstream_st* get() const noexcept { return stream_; }

 private:
  CUstream_st* stream_;
};

}  // namespace terrace
