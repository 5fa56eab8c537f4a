// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/admission_policy.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <utility>

namespace terrace::test {

/// What the concept promises of any policy; `policy` is fresh.
template <admission_policy Policy>
void check_admission_policy(Policy policy) {
  block_id const id = expert_block(layer_id{3}, expert_id{1});
  bool entered = false;
  for (int arrival = 0; arrival < 16; ++arrival) { entered = policy.admit(id) || entered; }
  CHECK(entered);  // a block that keeps coming gets in

  Policy moved{std::move(policy)};
  for (std::uint32_t other = 0; other < 200'000; ++other) {
    static_cast<void>(
        moved.admit(expert_block(layer_id{other >> 16U}, expert_id{other & 0xFFFFU})));
  }
  entered = false;
  for (int arrival = 0; arrival < 16; ++arrival) { entered = moved.admit(id) || entered; }
  CHECK(entered);
}

}  // namespace terrace::test
