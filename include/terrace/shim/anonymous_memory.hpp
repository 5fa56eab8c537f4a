// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/file.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace terrace::shim {

/// Which pages stand behind a mapping.
enum class page_kind : unsigned char {
  ordinary,
  transparent_huge,  ///< madvise(MADV_HUGEPAGE); the kernel decides
  reserved_huge,     ///< MAP_HUGETLB; taken from the pool the administrator set aside
};

/// A private anonymous mapping. Physical pages are taken at first touch, except for reserved huge
/// pages.
class anonymous_memory {
 public:
  anonymous_memory() = default;
  /// Errors: io_error when the kernel refuses the address space (or the huge pages).
  explicit anonymous_memory(std::size_t bytes, page_kind pages = page_kind::ordinary)
      : bytes_{bytes} {
    if (bytes == 0) { return; }
    int const huge = pages == page_kind::reserved_huge ? MAP_HUGETLB : MAP_NORESERVE;
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | huge, -1, 0);
    if (at == MAP_FAILED) {
      int const code = errno;
      throw io_error{
          "mapping " + format_size(bytes) + " of memory failed: " + errno_text(code) +
              "; lower the tier's size or raise vm.max_map_count and the overcommit limit",
          code};
    }
    data_ = static_cast<std::byte*>(at);
  }
  anonymous_memory(anonymous_memory&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  anonymous_memory& operator=(anonymous_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~anonymous_memory() {
    if (data_ != nullptr) { ::munmap(data_, bytes_); }
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Asks for transparent huge pages on whole pages of `range`; a kernel without them ignores it.
inline void advise_huge(std::span<std::byte> range) noexcept {
  ::madvise(range.data(), range.size(), MADV_HUGEPAGE);
}

/// Gives the physical pages of `range` back to the system; the addresses stay and read as zero.
/// False if the kernel refused and the pages are still held.
[[nodiscard]] inline bool give_back(std::span<std::byte> range) noexcept {
  if (::madvise(range.data(), range.size(), MADV_DONTNEED) == 0) { return true; }
  // Reserved huge pages before Linux 5.18 know no MADV_DONTNEED: a fresh mapping in place does the
  // same.
  return ::mmap(range.data(),
                range.size(),
                PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                -1,
                0) != MAP_FAILED;
}

/// Size of a huge page and how many of the reserved ones are free; zeros where there are none.
struct huge_page_facts {
  std::size_t page_bytes = 0;
  std::size_t free_pages = 0;
};
[[nodiscard]] inline huge_page_facts query_huge_pages() {
  huge_page_facts facts;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file{std::fopen("/proc/meminfo", "re"),
                                                             &std::fclose};
  if (file == nullptr) { return facts; }
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long long value = 0;
    if (std::sscanf(line, "Hugepagesize: %llu kB", &value) == 1) {
      facts.page_bytes = value * 1024;
    }
    if (std::sscanf(line, "HugePages_Free: %llu", &value) == 1) { facts.free_pages = value; }
  }
  return facts;
}

}  // namespace terrace::shim
