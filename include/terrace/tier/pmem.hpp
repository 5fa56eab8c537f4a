// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/file.hpp>
#include <terrace/shim/libpmem2.hpp>
#include <terrace/tier/detail/range_allocator.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

/// Where a pmem tier lives, and how large it is; without a size, as large as the file or device is.
struct pmem_location {
  std::filesystem::path path;
  std::optional<std::size_t> capacity_bytes = std::nullopt;
};

/// "PATH" or "PATH:SIZE". What follows the last colon is part of the path unless it is a size.
[[nodiscard]] inline pmem_location parse_pmem_location(std::string_view text) {
  auto const colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    if (auto const size = parse_size(text.substr(colon + 1))) {
      return {text.substr(0, colon), *size};
    }
  }
  return {text, std::nullopt};
}

#if defined(TERRACE_HAS_PMEM2)

/// Persistent memory: a devdax device, a file on a DAX file system, or, said out loud by `mode()`,
/// an ordinary file.
///
/// An ordinary file is created and extended as needed and stays when the tier ends. Its content is
/// a cache: nothing is promised to be found again. Its first page marks it as terrace's; a file or
/// device with other content is refused, so that a mistyped path costs no data. A second tier on
/// the same file, in this process or another, is refused.
///
/// Allocation is best-fit over one mapping: blocks of one size always find room while
/// `used_bytes()` leaves it; after frees of mixed sizes `try_allocate` may answer nothing although
/// the total would do, until more is freed. Not thread-safe, except for `store`. Shrinking the file
/// under a living tier ends the process (SIGBUS), as with any mapping.
class pmem {
 public:
  struct options {
    bool overwrite = false;  ///< take a file or device that holds something else
  };
  struct handle {
    std::uint64_t offset = 0;  ///< bytes from the start of the mapping
    friend bool operator==(handle const&, handle const&) = default;
  };
  static constexpr std::string_view name = "pmem";
  // Not `persistent`: the medium may be, but blocks are not found again by the next run.
  static constexpr tier_traits traits{.host_readable = true, .granularity = 4096};

  /// Errors: contract_error without a usable size; io_error when the file cannot be had, is in use, holds something
  ///         else, or the file system is full.
  explicit pmem(pmem_location const& where) : pmem{where, options{}} {}
  pmem(pmem_location const& where, options wanted) : path_{where.path} {
    if (where.capacity_bytes &&
        (*where.capacity_bytes == 0 || *where.capacity_bytes > SIZE_MAX / 4)) {
      throw fail("a capacity of " + std::to_string(*where.capacity_bytes) + " bytes cannot be had",
                 EINVAL);
    }
    bool const created = open();
    try {
      bool const device = is_device();
      std::size_t const length = device ? device_length(where) : file_length(where, wanted);
      mapping_ = std::make_unique<shim::pmem_mapping>(fd_.get(), length, path_.string());
      if (device) { refuse_foreign({mapping_->data(), header_bytes}, wanted); }
      capacity_ = std::min(where.capacity_bytes.value_or(SIZE_MAX), length - header_bytes);
      emulated_ = mapping_->granularity() == shim::store_granularity::page || !(device || is_dax());
    } catch (...) {
      if (created) { ::unlink(path_.c_str()); }
      throw;
    }
    free_ = tier::detail::range_allocator{round_down(capacity_)};
    mapping_->copy(mapping_->data(), header().data(), header_bytes);
    mapping_->drain();
  }

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }

  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    if (bytes > capacity_ - used_) { return std::nullopt; }
    std::size_t const size = rounded(bytes);
    auto const offset = free_.try_take(size);
    if (!offset) { return std::nullopt; }
    used_ += size;
    return handle{header_bytes + *offset};
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    free_.give_back(at.offset - header_bytes, rounded(bytes));
    used_ -= rounded(bytes);
  }
  [[nodiscard]] std::byte* address(handle at) const noexcept {
    return mapping_->data() + at.offset;
  }

  /// Copies into a block, past the cache on real persistent memory, and makes the bytes visible to
  /// every thread.
  void store(std::byte* to, std::byte const* from, std::size_t bytes) const noexcept {
    mapping_->copy(to, from, bytes);
    mapping_->drain();
  }
  /// The mapping, at one address for the life of the tier even if the tier moves.
  [[nodiscard]] shim::pmem_mapping& mapping() const noexcept { return *mapping_; }

  /// True unless stores reach persistent memory itself.
  [[nodiscard]] bool is_emulated() const noexcept { return emulated_; }
  /// "libpmem2, granularity cache line", or "libpmem2, granularity page, emulated: not real
  /// persistent memory".
  [[nodiscard]] std::string mode() const {
    static constexpr char const* names[] = {"byte", "cache line", "page"};
    std::string text = "libpmem2, granularity ";
    text += names[static_cast<unsigned>(mapping_->granularity())];
    if (emulated_) { text += ", emulated: not real persistent memory"; }
    return text;
  }

 private:
  static constexpr std::size_t header_bytes = 4096;
  static constexpr std::string_view magic = "terrace pmem cache 1\n";

  [[nodiscard]] static constexpr std::size_t round_down(std::size_t bytes) noexcept {
    return bytes / traits.granularity * traits.granularity;
  }
  [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return round_up(std::max<std::size_t>(bytes, 1), traits.granularity);
  }
  [[nodiscard]] static std::vector<std::byte> header() {
    std::vector<std::byte> page(header_bytes);
    std::memcpy(page.data(), magic.data(), magic.size());
    return page;
  }
  [[nodiscard]] io_error fail(std::string const& why, int code) const {
    return io_error{path_.string() + ": cannot be a pmem tier: " + why, code};
  }

  /// Opens and locks the file; true if it did not exist.
  bool open() {
    bool created = false;
    fd_ = shim::unique_fd{::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
    if (!fd_ && errno == ENOENT) {
      fd_ = shim::unique_fd{::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600)};
      created = static_cast<bool>(fd_);
    }
    if (!fd_) {
      int const code = errno;
      throw fail(shim::errno_text(code), code);
    }
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      int const code = errno;
      throw fail(code == EWOULDBLOCK ? "another process or tier uses it; name another file"
                                     : shim::errno_text(code),
                 code);
    }
    return created;
  }

  [[nodiscard]] struct stat facts() const {
    struct stat facts {};
    if (::fstat(fd_.get(), &facts) != 0) {
      int const code = errno;
      throw fail(shim::errno_text(code), code);
    }
    return facts;
  }
  [[nodiscard]] bool is_device() const {
    auto const mode = facts().st_mode;
    if (!S_ISREG(mode) && !S_ISCHR(mode)) {
      throw fail("it is neither a file nor a devdax device", EINVAL);
    }
    return S_ISCHR(mode);
  }
  [[nodiscard]] bool is_dax() const noexcept {
#if defined(STATX_ATTR_DAX)
    struct statx more {};
    return ::statx(fd_.get(), "", AT_EMPTY_PATH, 0, &more) == 0 &&
           (more.stx_attributes & STATX_ATTR_DAX) != 0;
#else
    return true;  // the granularity alone decides
#endif
  }

  /// Bytes of a device to map.
  [[nodiscard]] std::size_t device_length(pmem_location const& where) const {
    std::size_t const whole = shim::pmem_mapping::size_of(fd_.get(), path_.string());
    std::size_t const align = shim::pmem_mapping::alignment_of(fd_.get(), path_.string());
    if (!where.capacity_bytes) { return whole; }
    std::size_t const wanted = round_up(*where.capacity_bytes + header_bytes, align);
    if (wanted > whole) {
      throw fail(format_size(*where.capacity_bytes) + " were asked for but the device holds " +
                     format_size(whole),
                 ENOSPC);
    }
    return wanted;
  }

  /// Makes a file long enough, with blocks behind every byte, and answers the bytes to map.
  [[nodiscard]] std::size_t file_length(pmem_location const& where, options wanted) const {
    off_t const old_bytes = facts().st_size;
    std::vector<std::byte> first(
        std::min<std::size_t>(header_bytes, static_cast<std::size_t>(old_bytes)));
    if (::pread(fd_.get(), first.data(), first.size(), 0) != static_cast<ssize_t>(first.size())) {
      throw fail("its first page cannot be read", EIO);
    }
    refuse_foreign(first, wanted);
    std::size_t const old_length = static_cast<std::size_t>(old_bytes);
    if (!where.capacity_bytes && old_length < header_bytes + traits.granularity) {
      throw contract_error{path_.string() + ": a pmem tier on a file of " +
                           std::to_string(old_bytes) + " bytes needs a size; write " +
                           path_.string() + ":SIZE"};
    }
    std::size_t const length =
        where.capacity_bytes ? round_up(*where.capacity_bytes, traits.granularity) + header_bytes
                             : round_down(old_length);
    // Blocks behind every byte, or a full file system would end the process at a later store.
    int code = EINTR;
    while (code == EINTR) { code = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(length)); }
    if (code != 0) {
      static_cast<void>(::ftruncate(fd_.get(), old_bytes) == 0);
      throw fail("making it " + format_size(length) + " long failed: " + shim::errno_text(code),
                 code);
    }
    return length;
  }

  void refuse_foreign(std::span<std::byte const> first, options wanted) const {
    if (wanted.overwrite) { return; }
    bool const blank =
        std::all_of(first.begin(), first.end(), [](std::byte b) { return b == std::byte{}; });
    bool const ours =
        first.size() == header_bytes && std::memcmp(first.data(), magic.data(), magic.size()) == 0;
    if (!blank && !ours) {
      throw fail(
          "it holds something else than a terrace cache; name another file, or remove this one if "
          "it is not "
          "needed",
          EEXIST);
    }
  }

  std::filesystem::path path_;
  shim::unique_fd fd_;  // keeps the lock
  std::unique_ptr<shim::pmem_mapping> mapping_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  bool emulated_ = true;
  tier::detail::range_allocator free_{0};
};

static_assert(host_readable_tier<pmem>);

#endif

}  // namespace terrace
