// SPDX-License-Identifier: Apache-2.0
#include "text_file.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace terrace::runner {
namespace {

struct closer {
  void operator()(std::FILE* file) const noexcept {
    if (file != stdin) { std::fclose(file); }
  }
};

}  // namespace

std::string read_text_file(std::filesystem::path const& path) {
  auto const fail = [&](int code) {
    throw io_error{
        path.string() + " could not be read: " + std::strerror(code) + "; check the path", code};
  };
  std::unique_ptr<std::FILE, closer> const file{path == "-" ? stdin
                                                            : std::fopen(path.c_str(), "rb")};
  if (file == nullptr) { fail(errno); }
  std::string text;
  std::array<char, 65536> part{};
  while (auto const count = std::fread(part.data(), 1, part.size(), file.get())) {
    text.append(part.data(), count);
    if (text.size() > gib) { fail(EFBIG); }
  }
  if (std::ferror(file.get()) != 0) { fail(errno); }
  return text;
}

}  // namespace terrace::runner
