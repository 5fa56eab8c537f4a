// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_URING)

#include <liburing.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace terrace::shim {

/// Where a registered buffer or file is not used.
inline constexpr int unregistered = -1;

/// One read as the ring sees it.
struct ring_read {
  int file = 0;  ///< index of a registered file, or a descriptor
  std::byte* to = nullptr;
  std::uint32_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;      ///< comes back with the completion
  int buffer = unregistered;  ///< index of the registered buffer that holds [to, to + bytes)
};

/// An io_uring. Every call must come from the thread that made the ring.
class io_ring {
 public:
  struct completion {
    std::uint64_t tag = 0;
    int result = 0;  ///< bytes, or a negative errno value
  };
  /// Slots of the table of registered buffers; a ring without them registers one list once.
  static constexpr unsigned buffer_slots = 1024;

  /// Tries the kernel's modes from the cheapest completions to the plainest. On failure `error` is
  /// the last errno value.
  [[nodiscard]] static std::optional<io_ring> try_open(unsigned entries, int& error) noexcept {
    struct rung {
      unsigned flags;
      std::string_view name;
    };
    static constexpr rung ladder[] = {
        {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "SINGLE_ISSUER, DEFER_TASKRUN"},
        {IORING_SETUP_COOP_TASKRUN, "COOP_TASKRUN"},
        {0, "plain ring"},
    };
    for (auto const& [flags, name] : ladder) {
      io_ring ring;
      error = -::io_uring_queue_init(entries, &ring.ring_, flags);
      if (error != 0) { continue; }
      ring.open_ = true;
      ring.mode_ = name;
      if (ring.answers()) { return ring; }
      error = ENOSYS;
    }
    return std::nullopt;
  }
  io_ring(io_ring&& other) noexcept { swap(other); }
  io_ring& operator=(io_ring&& other) noexcept {
    swap(other);
    return *this;
  }
  ~io_ring() { close(); }

  /// Ends the ring; reads prepared and not submitted are dropped.
  void close() noexcept {
    if (std::exchange(open_, false)) { ::io_uring_queue_exit(&ring_); }
  }
  [[nodiscard]] std::string_view mode() const noexcept { return mode_; }

  /// 0 or an errno value, as all of the following.
  [[nodiscard]] int register_files(std::span<int const> fds) noexcept {
    return -::io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
  }
  /// Makes room for `buffer_slots` buffers that are set later (Linux 5.19).
  [[nodiscard]] int reserve_buffers() noexcept {
    return -::io_uring_register_buffers_sparse(&ring_, buffer_slots);
  }
  /// Pins `memory`, at most 1 GiB, as buffer `slot`; an empty span clears the slot.
  [[nodiscard]] int set_buffer(unsigned slot, std::span<std::byte> memory) noexcept {
    ::iovec const range{memory.data(), memory.size()};
    __u64 const no_tag = 0;
    int const done = ::io_uring_register_buffers_update_tag(&ring_, slot, &range, &no_tag, 1);
    return done < 0 ? -done : 0;
  }
  /// Registers one list of one buffer, for kernels without `reserve_buffers`.
  [[nodiscard]] int register_only_buffer(std::span<std::byte> memory) noexcept {
    ::iovec const range{memory.data(), memory.size()};
    return -::io_uring_register_buffers(&ring_, &range, 1);
  }

  /// Queues a read; false when the submission queue is full.
  [[nodiscard]] bool prepare(ring_read const& read, bool file_is_registered) noexcept {
    ::io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
    if (sqe == nullptr) { return false; }
    if (read.buffer == unregistered) {
      ::io_uring_prep_read(sqe, read.file, read.to, read.bytes, read.offset);
    } else {
      ::io_uring_prep_read_fixed(sqe, read.file, read.to, read.bytes, read.offset, read.buffer);
    }
    if (file_is_registered) { ::io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE); }
    ::io_uring_sqe_set_data64(sqe, read.tag);
    return true;
  }
  [[nodiscard]] unsigned prepared() const noexcept { return ::io_uring_sq_ready(&ring_); }

  /// Hands prepared reads to the kernel; with `wait` also blocks until a completion is there.
  [[nodiscard]] int submit(bool wait) noexcept {
    int const done =
        wait ? ::io_uring_submit_and_wait(&ring_, 1) : ::io_uring_submit_and_get_events(&ring_);
    return done < 0 ? -done : 0;
  }
  [[nodiscard]] std::optional<completion> next() noexcept {
    ::io_uring_cqe* cqe = nullptr;
    if (::io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe == nullptr) { return std::nullopt; }
    completion const done{cqe->user_data, cqe->res};
    ::io_uring_cqe_seen(&ring_, cqe);
    return done;
  }

 private:
  io_ring() = default;
  void swap(io_ring& other) noexcept {
    std::swap(ring_, other.ring_);
    std::swap(open_, other.open_);
    std::swap(mode_, other.mode_);
  }
  /// A sandbox may allow the set-up and refuse the work; a no-op tells.
  [[nodiscard]] bool answers() noexcept {
    ::io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
    if (sqe == nullptr) { return false; }
    ::io_uring_prep_nop(sqe);
    return submit(true) == 0 && next().has_value();
  }

  ::io_uring ring_{};
  bool open_ = false;
  std::string_view mode_;
};

}  // namespace terrace::shim

#endif
