// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <terrace/core/error.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace terrace::runner {
namespace {

bool is_device_or_pipe(std::filesystem::path const& path) {
  std::error_code ignored;
  auto const status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

}  // namespace

output_file::output_file(std::filesystem::path path) : path_{std::move(path)} {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path_, ignored)) {
    path_ = std::filesystem::weakly_canonical(path_, ignored);
  }
  written_ = path_;
  if (std::filesystem::is_directory(path_, ignored)) {
    errno = EISDIR;
    fail("written");
  }
  if (!is_device_or_pipe(path_)) { written_ += ".partial-" + std::to_string(::getpid()); }
  file_.reset(std::fopen(written_.c_str(), "wb"));
  if (file_ == nullptr) { fail("written"); }
}

output_file::~output_file() {
  if (file_ == nullptr) { return; }
  file_.reset();
  std::error_code ignored;
  if (written_ != path_) { std::filesystem::remove(written_, ignored); }
}

void output_file::write(std::span<std::byte const> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) { fail("written"); }
}

void output_file::commit() {
  if (std::fflush(file_.get()) != 0) { fail("written"); }
  if (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0) {
    fail("put in place");
  }
  written_ = path_;
  file_.reset();
}

void output_file::fail(char const* doing) const {
  int const code = errno;
  throw io_error{path_.string() + " could not be " + doing + ": " + std::strerror(code) +
                     "; check the folder, its permissions and the free space",
                 code};
}

}  // namespace terrace::runner
