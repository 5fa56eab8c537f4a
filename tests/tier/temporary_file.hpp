// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace terrace::test {

/// A file of its own in the temporary directory, removed at the end.
class temporary_file {
 public:
  explicit temporary_file(
      std::filesystem::path const& folder = std::filesystem::temp_directory_path()) {
    std::string pattern = (folder / "terrace-test-XXXXXX").string();
    int const fd = ::mkstemp(pattern.data());
    if (fd < 0) { throw std::runtime_error{"no temporary file at " + pattern}; }
    ::close(fd);
    path_ = pattern;
  }
  temporary_file(temporary_file const&) = delete;
  temporary_file& operator=(temporary_file const&) = delete;
  ~temporary_file() { std::filesystem::remove(path_); }

  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  void write(std::vector<std::byte> const& bytes) const {
    std::ofstream out{path_, std::ios::binary | std::ios::trunc};
    out.write(reinterpret_cast<char const*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

/// Bytes in which every 8-byte word differs, so that a shifted copy shows.
[[nodiscard]] inline std::vector<std::byte> distinct_bytes(std::size_t count,
                                                           std::uint64_t seed = 1) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 8 == 0) {
      state += 0x9E37'79B9'7F4A'7C15ULL;
      state ^= state >> 29U;
    }
    bytes[i] = static_cast<std::byte>(state >> (i % 8 * 8));
  }
  return bytes;
}

}  // namespace terrace::test
