// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_PMEM2)

#include <terrace/core/error.hpp>

#include <libpmem2.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace terrace::shim {

/// How far a store must be pushed until it survives a power failure.
enum class store_granularity : unsigned char { byte, cache_line, page };

/// A file or device mapped through libpmem2. The descriptor may be closed afterwards.
class pmem_mapping {
 public:
  /// Length and offset of a mapping of `fd` must be multiples of this.
  [[nodiscard]] static std::size_t alignment_of(int fd, std::string const& what) {
    auto const source = source_of(fd, what);
    std::size_t bytes = 0;
    require(::pmem2_source_alignment(source.get(), &bytes), what);
    return bytes;
  }
  /// Size of the file or device.
  [[nodiscard]] static std::size_t size_of(int fd, std::string const& what) {
    auto const source = source_of(fd, what);
    std::size_t bytes = 0;
    require(::pmem2_source_size(source.get(), &bytes), what);
    return bytes;
  }

  /// Maps the first `bytes` bytes, accepting every granularity; `what` names the file in errors.
  /// Errors: io_error.
  pmem_mapping(int fd, std::size_t bytes, std::string const& what) {
    auto const source = source_of(fd, what);
    ::pmem2_config* raw = nullptr;
    require(::pmem2_config_new(&raw), what);
    std::unique_ptr<::pmem2_config, delete_config> const config{raw};
    require(::pmem2_config_set_required_store_granularity(raw, PMEM2_GRANULARITY_PAGE), what);
    require(::pmem2_config_set_length(raw, bytes), what);
    ::pmem2_map* map = nullptr;
    require(::pmem2_map_new(&map, raw, source.get()), what);
    map_.reset(map);
    copy_ = ::pmem2_get_memcpy_fn(map);
    drain_ = ::pmem2_get_drain_fn(map);
  }

  [[nodiscard]] std::byte* data() const noexcept {
    return static_cast<std::byte*>(::pmem2_map_get_address(map_.get()));
  }
  [[nodiscard]] store_granularity granularity() const noexcept {
    switch (::pmem2_map_get_store_granularity(map_.get())) {
      case PMEM2_GRANULARITY_BYTE:
        return store_granularity::byte;
      case PMEM2_GRANULARITY_CACHE_LINE:
        return store_granularity::cache_line;
      default:
        return store_granularity::page;
    }
  }

  /// Copies with stores that bypass the cache; seen by other threads after `drain` on this one. On
  /// page granularity it is a plain copy: libpmem2 would write every page to the file before it
  /// returns.
  void copy(std::byte* to, std::byte const* from, std::size_t bytes) const noexcept {
    if (bytes == 0) { return; }
    if (granularity() == store_granularity::page) {
      std::memcpy(to, from, bytes);
    } else {
      copy_(to, from, bytes, PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
    }
  }
  void drain() const noexcept {
    if (granularity() != store_granularity::page) { drain_(); }
  }

 private:
  struct delete_source {
    void operator()(::pmem2_source* source) const noexcept { ::pmem2_source_delete(&source); }
  };
  struct delete_config {
    void operator()(::pmem2_config* config) const noexcept { ::pmem2_config_delete(&config); }
  };
  struct delete_map {
    void operator()(::pmem2_map* map) const noexcept { ::pmem2_map_delete(&map); }
  };

  static void require(int code, std::string const& what) {
    if (code == 0) { return; }
    std::string why = ::pmem2_errormsg();
    throw io_error{what + ": cannot be mapped as persistent memory: " +
                       (why.empty() ? "unknown reason" : why) + " (libpmem2 code " +
                       std::to_string(code) + ")",
                   code > -100'000 ? -code : 0};
  }
  [[nodiscard]] static std::unique_ptr<::pmem2_source, delete_source> source_of(
      int fd, std::string const& what) {
    ::pmem2_source* source = nullptr;
    require(::pmem2_source_from_fd(&source, fd), what);
    return std::unique_ptr<::pmem2_source, delete_source>{source};
  }

  std::unique_ptr<::pmem2_map, delete_map> map_;
  ::pmem2_memcpy_fn copy_ = nullptr;
  ::pmem2_drain_fn drain_ = nullptr;
};

}  // namespace terrace::shim

#endif
