// SPDX-License-Identifier: Apache-2.0
#include "tier/temporary_file.hpp"

#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/core/units.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

using namespace terrace;

TEST_CASE("a block's extents of several files land at their places in dram", "[copy]") {
  test::temporary_file const files[2];
  auto const first = test::distinct_bytes(mib + 5, 1);
  auto const second = test::distinct_bytes(300'000, 2);
  files[0].write(first);
  files[1].write(second);
  nvme home{{files[0].path(), files[1].path()}};
  dram tier{8 * mib};
  std::size_t const bytes = 400'000;
  auto const at = tier.try_allocate(bytes);
  REQUIRE(at.has_value());
  std::fill_n(tier.address(*at), bytes, std::byte{0xEE});
  block_extent const extents[] = {
      {{file_id{0}, 1'000'000, mib + 5 - 1'000'000}, 0},
      {{file_id{1}, 32, 250'000}, 64'000},
      {{file_id{1}, 0, 0}, 399'999},
      {{file_id{0}, 7, 1}, 399'998},
  };
  auto copying = copy_path<nvme, dram>::start(home, extents, tier, *at);
  copying.wait();
  auto const* const block = tier.address(*at);
  CHECK(std::equal(first.begin() + 1'000'000, first.end(), block));
  CHECK(std::equal(second.begin() + 32, second.begin() + 250'032, block + 64'000));
  CHECK(block[399'998] == first[7]);
  CHECK(block[399'999] == std::byte{0xEE});
  CHECK(block[63'999] == std::byte{0xEE});
}
