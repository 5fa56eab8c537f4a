// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

/// Files as the kernel sees them: descriptors, sizes and what direct I/O asks for.
namespace terrace::shim {

/// "Input/output error (errno 5)".
[[nodiscard]] inline std::string errno_text(int code) {
  return std::generic_category().message(code) + " (errno " + std::to_string(code) + ")";
}

/// Owns a file descriptor.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_{fd} {}
  unique_fd(unique_fd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  void reset() noexcept {
    if (fd_ >= 0) { ::close(fd_); }
    fd_ = -1;
  }
  int fd_ = -1;
};

/// What O_DIRECT asks of a read: both in bytes, both powers of two.
struct direct_alignment {
  std::size_t memory = 1;  ///< the address must be a multiple
  std::size_t offset = 1;  ///< so must the file offset and the length
};

/// An open regular file or block device.
struct opened_file {
  unique_fd fd;
  std::uint64_t bytes = 0;
};

/// Opens `path` for reading.
///
/// Errors: io_error when the file cannot be opened or is neither a regular file nor a block device. A pipe is refused,
///         not waited for.
[[nodiscard]] inline opened_file open_for_reading(std::filesystem::path const& path) {
  auto refuse = [&](std::string const& why, int code) {
    return io_error{path.string() + ": cannot be opened as a model file: " + why, code};
  };
  unique_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) {
    int const code = errno;
    throw refuse(errno_text(code), code);
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) {
    int const code = errno;
    throw refuse(errno_text(code), code);
  }
  if (!S_ISREG(facts.st_mode) && !S_ISBLK(facts.st_mode)) {
    throw refuse("it is neither a regular file nor a block device", EINVAL);
  }
  ::fcntl(fd.get(),
          F_SETFL,
          O_RDONLY);  // O_NONBLOCK was for pipes only; io_uring would answer EAGAIN with it
  off_t const end = ::lseek(fd.get(), 0, SEEK_END);
  if (end < 0) {
    int const code = errno;
    throw refuse("its size is unknown: " + errno_text(code), code);
  }
  return {std::move(fd), static_cast<std::uint64_t>(end)};
}

/// Turns O_DIRECT on or off for an open file, so that no second open can meet another file of the
/// same name. Answers 0 or an errno value (EINVAL where the file system has no direct I/O).
[[nodiscard]] inline int set_direct(int fd, bool direct) noexcept {
  return ::fcntl(fd, F_SETFL, direct ? O_RDONLY | O_DIRECT : O_RDONLY) == 0 ? 0 : errno;
}

/// The alignment direct reads of this file need, or nothing when the kernel says that it has none.
/// Kernels before 6.1 and some file systems do not tell; then the logical block size or 4096 is
/// assumed.
[[nodiscard]] inline std::optional<direct_alignment> direct_alignment_of(int fd) noexcept {
#if defined(STATX_DIOALIGN)
  struct statx facts {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    if (facts.stx_dio_offset_align == 0) { return std::nullopt; }
    return direct_alignment{facts.stx_dio_mem_align, facts.stx_dio_offset_align};
  }
#endif
  int block = 0;
  if (::ioctl(fd, BLKSSZGET, &block) == 0 && block > 0) {
    return direct_alignment{static_cast<std::size_t>(block), static_cast<std::size_t>(block)};
  }
  return direct_alignment{4096, 4096};
}

}  // namespace terrace::shim
