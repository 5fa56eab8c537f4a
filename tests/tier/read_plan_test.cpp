// SPDX-License-Identifier: Apache-2.0
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/nvme.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

using namespace terrace;
using namespace terrace::tier::detail;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A piece of 8192 bytes at offset 4096 of which bytes [100, 8000) are wanted, in a file with
/// direct I/O.
struct one_piece {
  one_piece() {
    content.write(test::distinct_bytes(64 * kib));
    file.path = content.path();
    file.opened = shim::open_for_reading(content.path());
    file.alignment = {512, 512};
    file.direct = true;
    part = {.owner = &work,
            .offset = 4096,
            .length = 8192,
            .skip = 100,
            .wanted = 7900,
            .bounced = true};
  }
  test::temporary_file content;
  model_file file;
  batch work;
  piece part;
};

}  // namespace

TEST_CASE("a plan delivers every byte once, in aligned pieces of bounded length", "[tier]") {
  struct alignments {
    std::size_t memory, offset;
  };
  auto const [memory, offset] = GENERATE(alignments{1, 1},
                                         alignments{4, 512},
                                         alignments{512, 512},
                                         alignments{4096, 4096},
                                         alignments{512, 65'536});
  bool const bounce_all = GENERATE(false, true);
  std::uint32_t const seed = 7;
  CAPTURE(memory, offset, bounce_all, seed);
  std::mt19937 random{seed};
  constexpr std::uint64_t piece_bytes = 128 * kib;
  model_file file;
  file.alignment = {memory, offset};
  file.direct = offset != 1;
  std::size_t in_place = 0;
  for (int round = 0; round < 2000; ++round) {
    std::uint64_t const from = random() % (1U << 20U);
    std::uint64_t const bytes = random() % (1U << (random() % 21)) + 1;
    // Half of the destinations agree with the file offset.
    std::uintptr_t const shift = round % 2 == 0 ? from % 65'536 : random() % 65'536;
    std::uintptr_t const to = (std::uintptr_t{1} << 30U) + shift;
    batch work;
    read_planner planner{piece_bytes, work, bounce_all};
    planner.add(file, {{file_id{0}, from, bytes}, std::bit_cast<std::byte*>(to)});
    std::uint64_t at = from;
    for (auto const& part : planner.take()) {
      REQUIRE(part.offset + part.skip == at);  // in file order, without gaps
      REQUIRE(std::bit_cast<std::uintptr_t>(part.to) == to + (at - from));
      REQUIRE(part.wanted >= 1);
      REQUIRE(part.skip + part.wanted <= part.length);
      REQUIRE(part.length <= piece_bytes);
      REQUIRE(part.offset % offset == 0);
      REQUIRE(part.length % offset == 0);
      if (!part.bounced) {
        ++in_place;
        REQUIRE(part.wanted == part.length);
        REQUIRE(std::bit_cast<std::uintptr_t>(part.to) % memory == 0);
      }
      at += part.wanted;
    }
    REQUIRE(at == from + bytes);
  }
  CHECK((in_place > 100) == !bounce_all);
}

TEST_CASE("a read that answers in full ends its piece", "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, true, 8192) == verdict::finished);
  CHECK_FALSE(one.work.failure.has_value());
}

TEST_CASE("a short read asks for the rest until the wanted bytes are there", "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, true, 512) == verdict::again);
  CHECK(one.part.done == 512);
  CHECK(judge(one.part, one.file, true, 7680 - 512) == verdict::again);
  CHECK(judge(one.part, one.file, true, 320) ==
        verdict::finished);  // the file ends right behind them
}

TEST_CASE("a read that stops off a boundary before the wanted bytes met the end of the file",
          "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, true, 700) == verdict::failed);
  REQUIRE(one.work.failure.has_value());
  CHECK(one.work.failure->code == 0);
  CHECK_THAT(to_error(*one.work.failure, one.file).what(),
             ContainsSubstring("7900 bytes at offset 4196") &&
                 ContainsSubstring("65536 bytes when it was opened"));
}

TEST_CASE("a read of nothing met the end of the file", "[tier]") {
  one_piece one;
  one.file.direct = false;
  CHECK(judge(one.part, one.file, true, 700) == verdict::again);
  CHECK(judge(one.part, one.file, true, 0) == verdict::failed);
}

TEST_CASE("an interrupted read is repeated, but not for ever", "[tier]") {
  int const code = GENERATE(EINTR, EAGAIN);
  one_piece one;
  int repeats = 0;
  while (judge(one.part, one.file, true, -code) == verdict::again) { REQUIRE(++repeats < 100'000); }
  CHECK(repeats > 100);
  CHECK(one.work.failure->code == code);
}

TEST_CASE("a file that refuses direct reads goes on buffered, alone", "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, true, -EINVAL) == verdict::again);
  CHECK_FALSE(one.file.direct);
  CHECK((::fcntl(one.file.fd(), F_GETFL) & O_DIRECT) == 0);
  CHECK(judge(one.part, one.file, true, -EINVAL) == verdict::again);  // one that was on its way
  CHECK(judge(one.part, one.file, true, 8192) == verdict::finished);
}

TEST_CASE("a file that refuses direct reads is an error where they were demanded", "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, false, -EINVAL) == verdict::failed);
  CHECK(one.work.failure->code == EINVAL);
}

TEST_CASE("a failing drive is named with its errno, and the first failure stays", "[tier]") {
  one_piece one;
  CHECK(judge(one.part, one.file, true, -EIO) == verdict::failed);
  CHECK(judge(one.part, one.file, true, -ENXIO) == verdict::failed);
  auto const failure = to_error(*one.work.failure, one.file);
  CHECK(failure.code() == EIO);
  CHECK_THAT(failure.what(),
             ContainsSubstring(one.file.path.string()) && ContainsSubstring("errno 5"));
}
