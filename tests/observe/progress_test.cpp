// SPDX-License-Identifier: Apache-2.0
#include <terrace/observe/progress.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::uint64_t mebibyte = 1U << 20U;

}  // namespace

TEST_CASE("byte progress shows bytes, rate and time left", "[observe]") {
  CHECK(observe::bytes_progress(100 * mebibyte, 400 * mebibyte, 2.0) ==
        "100.00 MiB of 400.00 MiB, 50.00 MiB/s, 6 s left");
  CHECK(observe::bytes_progress(400 * mebibyte, 400 * mebibyte, 2.0) ==
        "400.00 MiB of 400.00 MiB, 200.00 MiB/s");
  CHECK(observe::bytes_progress(2 * mebibyte, 0, 1.0) == "2.00 MiB, 2.00 MiB/s");
  CHECK(observe::bytes_progress(0, mebibyte, 1.0) == "0 B of 1.00 MiB");
  CHECK(observe::bytes_progress(mebibyte, mebibyte, 0.0) == "1.00 MiB of 1.00 MiB");
  CHECK_THAT(observe::bytes_progress(1, UINT64_MAX, 1e9), ContainsSubstring("many s left"));
}

TEST_CASE("token progress shows tokens per second", "[observe]") {
  CHECK(observe::tokens_progress(1, 0.5) == "1 token, 2.0 tokens/s");
  CHECK(observe::tokens_progress(30, 4.0) == "30 tokens, 7.5 tokens/s");
  CHECK(observe::tokens_progress(0, 4.0) == "0 tokens");
}

TEST_CASE("progress is silent on what is no terminal", "[observe]") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    observe::progress line{file, "loading"};
    CHECK_FALSE(line.visible());
    line.bytes(1, 2);
    line.tokens(3);
  }
  CHECK(std::ftell(file) == 0);
  std::fclose(file);
  observe::progress nowhere{nullptr, "loading"};
  nowhere.tokens(1);
  CHECK_FALSE(nowhere.visible());
}

TEST_CASE("progress rewrites one line of a terminal and wipes it", "[observe]") {
  int const terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
    SKIP("no pseudo-terminal here");
  }
  std::FILE* screen = std::fopen(::ptsname(terminal), "w");
  REQUIRE(screen != nullptr);
  {
    observe::progress line{screen, "generating"};
    CHECK(line.visible());
    line.tokens(1);
    line.tokens(2);  // within a tenth of a second: not shown
  }
  std::array<char, 512> shown{};
  auto const count = ::read(terminal, shown.data(), shown.size());
  REQUIRE(count > 0);
  std::string const text(shown.data(), static_cast<std::size_t>(count));
  CHECK_THAT(text, ContainsSubstring("\rgenerating: 1 token"));
  CHECK(text.find("2 tokens") == std::string::npos);
  CHECK(text.back() == '\r');
  std::fclose(screen);
  ::close(terminal);
}

}  // namespace terrace::test
