// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace terrace::test {

/// A fresh folder that is removed with everything in it.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) { throw std::runtime_error{"no scratch folder"}; }
    path_ = name;
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string file(std::string_view name) const { return (path_ / name).string(); }
  /// Writes `bytes` to a new file and returns its path.
  [[nodiscard]] std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream{file(name), std::ios::binary} << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string bytes_of(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace terrace::test
