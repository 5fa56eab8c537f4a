// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace terrace::format {

/// Bytes with a size that can be read at any offset. Parsers read model files through it, so that a
/// test or a fuzzer can hand them memory instead.
class byte_source {
 public:
  byte_source() = default;
  byte_source(byte_source const&) = delete;
  byte_source& operator=(byte_source const&) = delete;
  virtual ~byte_source() = default;

  /// The file's path, for error sentences.
  [[nodiscard]] virtual std::string const& name() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Fills `into` with the bytes from `offset` on; the caller keeps the range inside
  /// `size_bytes()`.
  /// Errors: io_error when the system fails or the source has become shorter.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Borrows memory that outlives it.
class memory_source final : public byte_source {
 public:
  memory_source(std::string name, std::span<std::byte const> bytes)
      : name_{std::move(name)}, bytes_{bytes} {}
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    TERRACE_ASSERT(offset <= bytes_.size() && into.size() <= bytes_.size() - offset);
    if (!into.empty()) { std::memcpy(into.data(), bytes_.data() + offset, into.size()); }
  }

 private:
  std::string name_;
  std::span<std::byte const> bytes_;
};

/// A regular file, read with pread; never mapped.
class file_source final : public byte_source {
 public:
  /// Errors: io_error when the file cannot be opened; format_error when it is not a regular file.
  explicit file_source(std::filesystem::path const& path) : name_{path.string()} {
    // O_NONBLOCK: opening a FIFO by mistake must not wait for a writer.
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) { fail("cannot be opened", errno); }
    struct stat facts {};
    if (::fstat(file_, &facts) != 0) {
      int const code = errno;
      ::close(file_);
      fail("cannot be examined", code);
    }
    if (!S_ISREG(facts.st_mode)) {
      ::close(file_);
      throw format_error{name_ +
                         ": not a regular file; name a model file or a folder that holds one"};
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
  ~file_source() override { ::close(file_); }

  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      ssize_t const got = ::pread(file_, into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) { continue; }
      if (got < 0) { fail("cannot be read at byte " + std::to_string(offset), errno); }
      if (got == 0) {
        throw io_error{
            name_ + ": became shorter than " + std::to_string(size_) + " bytes while being read",
            0};
      }
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(std::string const& what, int code) const {
    throw io_error{name_ + ": " + what + " (" + std::strerror(code) + ")", code};
  }

  std::string name_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace terrace::format
