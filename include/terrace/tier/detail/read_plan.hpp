// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/home.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/shim/file.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// How a read of any offset, length and address becomes pieces that direct I/O accepts.
namespace terrace::tier::detail {

[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t value,
                                                 std::uint64_t multiple) noexcept {
  return value / multiple * multiple;
}

/// A model file, opened once and kept. `direct` only ever goes from true to false, from any thread.
struct model_file {
  std::filesystem::path path;
  shim::opened_file opened;
  shim::direct_alignment
      alignment;  ///< of planned pieces; 1 and 1 for a file opened without direct I/O
  std::atomic<bool> direct{false};
  std::string why_buffered;  ///< empty while direct

  [[nodiscard]] int fd() const noexcept { return opened.fd.get(); }
};

/// How bytes leave the staging memory. Must be callable from any thread.
struct byte_copier {
  void (*copy)(void* context, std::byte* to, std::byte const* from, std::size_t bytes) noexcept =
      [](void*, std::byte* to, std::byte const* from, std::size_t bytes) noexcept {
        std::memcpy(to, from, bytes);
      };
  void* context = nullptr;
};

/// The first thing that went wrong in a batch. Code 0: the file ended too early.
struct read_failure {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  int code = 0;
};

/// The reads of one ticket; over when no piece is left.
struct batch {
  std::size_t pieces_left = 0;
  byte_copier copier;
  std::optional<read_failure> failure;
};

/// One request to the kernel: `length` bytes at `offset`, of which [skip, skip + wanted) go to
/// `to`. In place, `skip` is 0, `wanted` is `length` and the kernel writes to `to` itself.
struct piece {
  batch* owner = nullptr;
  std::byte* to = nullptr;
  std::uint64_t offset = 0;
  std::uint32_t file = 0;
  std::uint32_t length = 0;
  std::uint32_t skip = 0;
  std::uint32_t wanted = 0;
  std::uint32_t done = 0;  ///< bytes of `length` that have arrived
  std::uint32_t retries = 0;
  bool bounced = false;
};

inline constexpr std::size_t page_bytes = 4096;

/// Below this many aligned bytes one bounced read is cheaper than a read in place with two bounced
/// edges.
inline constexpr std::uint64_t least_in_place = 64 * kib;

/// Splits reads of one batch; every length is at most `piece_bytes`, a multiple of every file's
/// alignment.
class read_planner {
 public:
  read_planner(std::uint64_t piece_bytes, batch& owner, bool bounce_all) noexcept
      : piece_bytes_{piece_bytes}, owner_{owner}, bounce_all_{bounce_all} {}

  void add(model_file const& file, file_read const& read) {
    bool const direct = file.direct.load(std::memory_order_relaxed);
    auto const align = direct ? file.alignment : shim::direct_alignment{};
    std::uint64_t const end = read.from.offset + read.from.bytes;
    std::uint64_t const first = round_up(read.from.offset, align.offset);
    std::uint64_t const last = round_down(end, align.offset);
    if (bounce_all_ || (direct && !fits_in_place(read, align, first, last))) {
      bounce(read, align.offset, read.from.offset, end);
      return;
    }
    bounce(read, align.offset, read.from.offset, first);
    for (std::uint64_t at = first; at < last; at += piece_bytes_) {
      auto const length = static_cast<std::uint32_t>(std::min(piece_bytes_, last - at));
      pieces_.push_back({.owner = &owner_,
                         .to = read.to + (at - read.from.offset),
                         .offset = at,
                         .file = static_cast<std::uint32_t>(read.from.file),
                         .length = length,
                         .wanted = length});
    }
    bounce(read, align.offset, last, end);
  }

  [[nodiscard]] std::vector<piece> take() noexcept { return std::move(pieces_); }

 private:
  [[nodiscard]] static bool fits_in_place(file_read const& read,
                                          shim::direct_alignment align,
                                          std::uint64_t first,
                                          std::uint64_t last) noexcept {
    if (last < first || last - first < least_in_place) { return false; }
    return std::bit_cast<std::uintptr_t>(read.to + (first - read.from.offset)) % align.memory == 0;
  }

  /// File bytes [from, to) through staging, widened to the alignment.
  void bounce(file_read const& read, std::uint64_t align, std::uint64_t from, std::uint64_t to) {
    while (from < to) {
      std::uint64_t const start = round_down(from, align);
      std::uint64_t const stop = std::min(to, start + piece_bytes_);
      pieces_.push_back({.owner = &owner_,
                         .to = read.to + (from - read.from.offset),
                         .offset = start,
                         .file = static_cast<std::uint32_t>(read.from.file),
                         .length = static_cast<std::uint32_t>(round_up(stop, align) - start),
                         .skip = static_cast<std::uint32_t>(from - start),
                         .wanted = static_cast<std::uint32_t>(stop - from),
                         .bounced = true});
      from = stop;
    }
  }

  std::uint64_t piece_bytes_;
  batch& owner_;
  bool bounce_all_;
  std::vector<piece> pieces_;
};

enum class verdict : unsigned char { finished, again, failed };

/// Books what one read of `part` answered (bytes, or a negative errno value) and says what to do
/// next. `again` asks for the bytes from `part.done` on.
[[nodiscard]] inline verdict judge(piece& part,
                                   model_file& file,
                                   bool may_buffer,
                                   int result) noexcept {
  constexpr std::uint32_t most_retries = 1000;
  auto fail = [&](int code) {
    if (!part.owner->failure) {
      part.owner->failure = {part.file, part.offset + part.skip, part.wanted, code};
    }
    return verdict::failed;
  };
  if (result == -EAGAIN || result == -EINTR) {
    return ++part.retries < most_retries ? verdict::again : fail(-result);
  }
  if (result == -EINVAL && may_buffer && file.direct.load(std::memory_order_relaxed)) {
    if (int const code = shim::set_direct(file.fd(), false); code != 0) { return fail(code); }
    file.direct.store(false, std::memory_order_relaxed);
    return verdict::again;
  }
  if (result < 0) {
    // Another piece of this file may have gone buffered while this one was on its way.
    bool const stale = result == -EINVAL && may_buffer && ++part.retries < most_retries;
    return stale ? verdict::again : fail(-result);
  }
  part.done += static_cast<std::uint32_t>(result);
  if (part.done >= part.skip + part.wanted) { return verdict::finished; }
  // A direct read stops off a boundary only at the end of the file.
  bool const off_boundary =
      file.direct.load(std::memory_order_relaxed) && part.done % file.alignment.offset != 0;
  return result == 0 || off_boundary ? fail(0) : verdict::again;
}

/// Opens the files and finds out, with one read each, which of them do direct I/O.
///
/// Errors: io_error for a file that cannot be opened; not_supported if `demand_direct` and one cannot.
[[nodiscard]] inline std::deque<model_file> open_model_files(
    std::vector<std::filesystem::path> const& paths, bool want_direct, bool demand_direct) {
  auto why_not_direct = [](model_file const& file) -> std::string {
    if (int const code = shim::set_direct(file.fd(), true); code != 0) {
      return shim::errno_text(code);
    }
    // One real read: some file systems take the flag and refuse the work.
    shim::anonymous_memory const probe{file.alignment.offset};
    if (::pread(file.fd(), probe.data(), probe.size(), 0) < 0) { return shim::errno_text(errno); }
    return {};
  };
  std::deque<model_file> files;
  for (auto const& path : paths) {
    auto& file = files.emplace_back();
    file.path = path;
    file.opened = shim::open_for_reading(path);
    if (!want_direct) { continue; }
    auto const align = shim::direct_alignment_of(file.fd());
    if (align && align->memory <= page_bytes) {
      file.alignment = *align;
      file.why_buffered = why_not_direct(file);
    } else {
      file.why_buffered =
          align ? "it asks for addresses aligned to more than a page" : "the file system has none";
    }
    if (file.why_buffered.empty()) {
      file.direct = true;
      continue;
    }
    if (demand_direct) {
      throw not_supported{path.string() + ": direct I/O was asked for but cannot be had: " +
                          file.why_buffered + "; choose another engine"};
    }
    static_cast<void>(shim::set_direct(file.fd(), false));
    file.alignment = {};
  }
  return files;
}

[[nodiscard]] inline io_error to_error(read_failure const& what, model_file const& file) {
  std::string const range =
      std::to_string(what.bytes) + " bytes at offset " + std::to_string(what.offset);
  if (what.code != 0) {
    return io_error{file.path.string() + ": reading " + range + " failed: " +
                        shim::errno_text(what.code) + "; check the drive and the kernel log",
                    what.code};
  }
  return io_error{file.path.string() + ": reading " + range +
                      " met the end of the file, which had " + std::to_string(file.opened.bytes) +
                      " bytes when it was opened; it is truncated or not the file the model names, "
                      "so fetch it again",
                  0};
}

/// Carries pieces to memory. One thread at a time calls it.
class piece_reader {
 public:
  virtual ~piece_reader() = default;
  /// Takes over the pieces of `work` and sets its `pieces_left`; they start at once as far as the
  /// queue has room. After an exception nothing of `work` is under way.
  virtual void start(batch& work, std::vector<piece> pieces) = 0;
  /// Makes progress without blocking; true once `work` is over.
  virtual bool poll(batch const& work) noexcept = 0;
  /// Blocks until `work` is over.
  virtual void finish(batch const& work) = 0;
  [[nodiscard]] virtual std::string mode() const = 0;
  [[nodiscard]] virtual std::size_t staging_bytes() const noexcept = 0;
  /// Pins `range` for cheaper reads into it; false where that brings nothing or is not allowed.
  virtual bool register_region(std::span<std::byte>) { return false; }
  virtual void forget_region(std::span<std::byte>) noexcept {}
};

}  // namespace terrace::tier::detail
