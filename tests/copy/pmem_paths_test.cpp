// SPDX-License-Identifier: Apache-2.0
#include "tier/temporary_file.hpp"

#include <terrace/copy/dram_to_pmem.hpp>
#include <terrace/copy/nvme_to_pmem.hpp>
#include <terrace/copy/pmem_to_dram.hpp>
#include <terrace/core/units.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

using namespace terrace;

#if defined(TERRACE_HAS_PMEM2)

TEST_CASE("a block's extents land at their places in pmem with every engine", "[copy][pmem]") {
  auto const engine =
      GENERATE(read_engine::automatic, read_engine::uring_buffered, read_engine::pread_buffered);
  test::temporary_file const model;
  test::temporary_file const cache;
  auto const content = test::distinct_bytes(3 * mib + 5);
  model.write(content);
  nvme home{{model.path()}, {.engine = engine}};
  pmem tier{{cache.path(), 8 * mib}};
  std::size_t const bytes = 2 * mib + 300'000;
  auto const at = tier.try_allocate(bytes);
  REQUIRE(at.has_value());
  block_extent const extents[] = {
      {{file_id{0}, 1'000'001, 2 * mib}, 0},
      {{file_id{0}, 4096, 200'000}, 2 * mib + 64},
  };
  auto copying = copy_path<nvme, pmem>::start(home, extents, tier, *at);
  pmem const moved{std::move(tier)};  // the mapping stays put
  copying.wait();
  auto const* const block = moved.address(*at);
  CHECK(std::equal(block, block + 2 * mib, content.begin() + 1'000'001));
  CHECK(std::equal(block + 2 * mib + 64, block + 2 * mib + 200'064, content.begin() + 4096));
}

TEST_CASE("a block keeps its bytes on the way from dram to pmem and back", "[copy][pmem]") {
  test::temporary_file const cache;
  auto const content = test::distinct_bytes(mib + 33);
  dram fast{4 * mib};
  pmem slow{{cache.path(), 4 * mib}};
  auto const first = fast.try_allocate(content.size());
  auto const middle = slow.try_allocate(content.size());
  auto const last = fast.try_allocate(content.size());
  REQUIRE((first && middle && last));
  std::copy(content.begin(), content.end(), fast.address(*first));
  copy_path<dram, pmem>::start(fast, *first, slow, *middle, content.size()).wait();
  CHECK(std::equal(content.begin(), content.end(), slow.address(*middle)));
  copy_path<pmem, dram>::start(slow, *middle, fast, *last, content.size()).wait();
  CHECK(std::equal(content.begin(), content.end(), fast.address(*last)));
  CHECK(copy_path<dram, pmem>::start(fast, *first, slow, *middle, 0).ready());
}

#endif
