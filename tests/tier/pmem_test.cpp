// SPDX-License-Identifier: Apache-2.0
#include "tier/memory_tier_conformance.hpp"
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/pmem.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a pmem location ends in a size only if what follows the last colon is one",
          "[tier][pmem]") {
  CHECK(parse_pmem_location("/mnt/pmem/cache").path == "/mnt/pmem/cache");
  CHECK_FALSE(parse_pmem_location("/mnt/pmem/cache").capacity_bytes.has_value());
  CHECK(parse_pmem_location("/mnt/pmem/cache:64MiB").path == "/mnt/pmem/cache");
  CHECK(parse_pmem_location("/mnt/pmem/cache:64MiB").capacity_bytes == 64 * mib);
  CHECK(parse_pmem_location("/mnt/a:b").path == "/mnt/a:b");
  CHECK(parse_pmem_location("/mnt/a:b:1K").path == "/mnt/a:b");
  CHECK(parse_pmem_location("x:").path == "x:");
}

TEST_CASE("free runs merge with both neighbours and never overlap", "[tier][pmem]") {
  std::uint32_t const seed = 99;
  CAPTURE(seed);
  std::mt19937 random{seed};
  constexpr std::uint64_t size = 1 << 16;
  tier::detail::range_allocator runs{size};
  std::map<std::uint64_t, std::uint64_t> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      std::uint64_t const bytes = random() % 4000 + 1;
      auto const at = runs.try_take(bytes);
      if (!at) {
        REQUIRE(runs.longest() < bytes);
        continue;
      }
      auto const after = live.lower_bound(*at);
      REQUIRE(*at + bytes <= (after == live.end() ? size : after->first));
      if (after != live.begin()) {
        REQUIRE(std::prev(after)->first + std::prev(after)->second <= *at);
      }
      live.emplace(*at, bytes);
    } else {
      auto const gone =
          std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      runs.give_back(gone->first, gone->second);
      live.erase(gone);
    }
  }
  for (auto const& [at, bytes] : live) { runs.give_back(at, bytes); }
  CHECK(runs.longest() == size);
}

#if defined(TERRACE_HAS_PMEM2)

TEST_CASE("pmem keeps the promises of a memory tier", "[tier][pmem]") {
  test::temporary_file const file;
  test::check_memory_tier(pmem{{file.path(), 4 * mib}});
}

TEST_CASE("pmem on an ordinary file says that it is emulated", "[tier][pmem]") {
  test::temporary_file const file;
  pmem const tier{{file.path(), mib}};
  CHECK(tier.is_emulated());
  char const* const forced =
      std::getenv("PMEM2_FORCE_GRANULARITY");  // set by the second run of these tests
  std::string const granularity =
      forced != nullptr && std::string_view{forced} == "CACHE_LINE" ? "cache line" : "page";
  CHECK(tier.mode() ==
        "libpmem2, granularity " + granularity + ", emulated: not real persistent memory");
}

TEST_CASE("pmem holds what was stored", "[tier][pmem]") {
  test::temporary_file const file;
  pmem tier{{file.path(), 4 * mib}};
  auto const content = test::distinct_bytes(mib + 13);
  auto const at = tier.try_allocate(content.size());
  REQUIRE(at.has_value());
  for (std::size_t const shift : {0U, 1U, 64U, 255U}) {
    tier.store(tier.address(*at) + shift, content.data() + shift, content.size() - shift - 7);
    CHECK(std::equal(content.begin() + shift, content.end() - 7, tier.address(*at) + shift));
  }
  tier.store(tier.address(*at), content.data(), 0);
}

TEST_CASE("blocks of one size fill pmem again after any order of frees", "[tier][pmem]") {
  test::temporary_file const file;
  constexpr std::size_t block = 3 * 4096 + 100;
  pmem tier{{file.path(), 64 * 16'384}};
  std::mt19937 random{5};
  std::vector<pmem::handle> live;
  for (int round = 0; round < 50; ++round) {
    while (auto const at = tier.try_allocate(block)) { live.push_back(*at); }
    REQUIRE(live.size() == 64);
    std::shuffle(live.begin(), live.end(), random);
    for (std::size_t i = random() % 64; i > 0; --i) {
      tier.deallocate(live.back(), block);
      live.pop_back();
    }
  }
}

TEST_CASE("pmem takes the size of its file unless one is given", "[tier][pmem]") {
  test::temporary_file const file;
  CHECK_THROWS_WITH(pmem{{file.path()}}, ContainsSubstring("needs a size"));
  { CHECK(pmem{{file.path(), mib + 1}}.capacity_bytes() == mib + 1); }
  { CHECK(pmem{{file.path()}}.capacity_bytes() == mib + 4096); }
  { CHECK(pmem{{file.path(), 64 * kib}}.capacity_bytes() == 64 * kib); }
  CHECK(std::filesystem::file_size(file.path()) == mib + 2 * 4096);  // never made shorter
  struct stat facts {};
  REQUIRE(::stat(file.path().c_str(), &facts) == 0);
  CHECK(static_cast<std::size_t>(facts.st_blocks) * 512 >= mib);  // not sparse
}

TEST_CASE("two pmem tiers on one file are refused", "[tier][pmem]") {
  test::temporary_file const file;
  pmem first{{file.path(), mib}};
  CHECK_THROWS_WITH((pmem{{file.path(), mib}}),
                    ContainsSubstring("another process or tier uses it"));
  pid_t const child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      pmem const second{{file.path(), mib}};
    } catch (io_error const&) { status = 0; }
    ::_exit(status);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("pmem takes over a file that an earlier tier left", "[tier][pmem]") {
  test::temporary_file const file;
  { pmem const first{{file.path(), mib}}; }
  CHECK(pmem{{file.path(), 2 * mib}}.capacity_bytes() == 2 * mib);
}

TEST_CASE("pmem leaves a file alone that holds something else", "[tier][pmem]") {
  test::temporary_file const file;
  auto const content = test::distinct_bytes(10'000);
  file.write(content);
  CHECK_THROWS_WITH((pmem{{file.path(), mib}}), ContainsSubstring("holds something else"));
  CHECK_THROWS_WITH((pmem{{file.path()}}), ContainsSubstring("holds something else"));
  CHECK(std::filesystem::file_size(file.path()) == content.size());
  CHECK(pmem{{file.path(), mib}, {.overwrite = true}}.capacity_bytes() == mib);
}

TEST_CASE("pmem refuses places and sizes that cannot be", "[tier][pmem]") {
  test::temporary_file const file;
  CHECK_THROWS_WITH((pmem{{"/nonexistent/cache", mib}}), ContainsSubstring("/nonexistent/cache"));
  CHECK_THROWS_WITH((pmem{{"/", mib}}), ContainsSubstring("/: cannot be a pmem tier"));
  CHECK_THROWS_WITH((pmem{{"/dev/null", mib}}), ContainsSubstring("/dev/null"));
  CHECK_THROWS_WITH((pmem{{file.path(), 0}}), ContainsSubstring("0 bytes"));
  CHECK_THROWS_WITH((pmem{{file.path(), SIZE_MAX}}), ContainsSubstring("bytes cannot be had"));
  CHECK_THROWS_AS((pmem{{file.path(), std::size_t{1} << 60}}), io_error);
  CHECK(std::filesystem::file_size(file.path()) == 0);  // a failed attempt leaves it as it was
  auto const fresh = file.path().string() + "-new";
  CHECK_THROWS_AS((pmem{{fresh, std::size_t{1} << 60}}), io_error);
  CHECK_FALSE(std::filesystem::exists(fresh));
}

#endif
