// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace terrace::runner {

/// A file that appears under its name whole or not at all.
///
/// It is opened when made, so that a missing folder is found before any work is done; bytes go to a
/// neighbour that is renamed by `commit` and removed otherwise. Devices and pipes are written
/// directly.
/// Errors: io_error naming the file, from the constructor, `write` and `commit`.
class output_file {
 public:
  explicit output_file(std::filesystem::path path);
  output_file(output_file&&) = default;
  output_file& operator=(output_file&&) = delete;
  ~output_file();

  void write(std::string_view text) { write(std::as_bytes(std::span{text})); }
  void write(std::span<std::byte const> bytes);
  /// Makes everything written visible under the file's name. The last call.
  void commit();

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  [[noreturn]] void fail(char const* doing) const;

  std::filesystem::path path_;
  std::filesystem::path written_;  ///< where the bytes go; equal to `path_` for devices and pipes
  std::unique_ptr<std::FILE, closer> file_;
};

}  // namespace terrace::runner
