// SPDX-License-Identifier: Apache-2.0
#include <terrace/dispatch/any.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <string>

using namespace terrace;

namespace {

expert_work work_of(std::size_t tokens, std::size_t experts = 8, std::size_t missing = 8) {
  return {.layer = layer_id{3}, .tokens = tokens, .experts = experts, .missing = missing};
}

/// Lets the policy run `count` times on sides that take so long; returns how often it took the
/// device.
template <class Seconds>
int run(dispatch::any& policy, expert_work const& work, int count, Seconds&& seconds) {
  int device = 0;
  for (int i = 0; i < count; ++i) {
    auto const choice = policy.choose(work);
    device += choice.side == compute_side::device ? 1 : 0;
    if (choice.timed) { policy.observe(work, choice.side, seconds(choice.side)); }
  }
  return device;
}

}  // namespace

TEST_CASE("device and host always take their side and ask for no timing") {
  for (std::size_t const tokens : {std::size_t{1}, std::size_t{512}}) {
    auto const on_device = dispatch::any{"device"}.choose(work_of(tokens));
    CHECK(on_device.side == compute_side::device);
    CHECK_FALSE(on_device.timed);
    auto const on_host = dispatch::any{"host"}.choose(work_of(tokens));
    CHECK(on_host.side == compute_side::host);
    CHECK_FALSE(on_host.timed);
  }
}

TEST_CASE("min-batch takes the device from its number of tokens on") {
  dispatch::any policy{"min-batch:32"};
  CHECK(policy.choose(work_of(1)).side == compute_side::host);
  CHECK(policy.choose(work_of(31)).side == compute_side::host);
  CHECK(policy.choose(work_of(32)).side == compute_side::device);
  CHECK(policy.uses_host());
  CHECK(policy.uses_device());
}

TEST_CASE("auto settles on the faster side of each kind of batch") {
  dispatch::any policy{"auto"};
  auto const host_wins = [](compute_side side) {
    return side == compute_side::host ? 0.001 : 0.01;
  };
  auto const device_wins = [](compute_side side) {
    return side == compute_side::host ? 0.01 : 0.001;
  };
  CHECK(run(policy, work_of(1), 1000, host_wins) <= 4);
  CHECK(run(policy, work_of(512), 1000, device_wins) >= 996);
  CHECK(run(policy, work_of(1), 200, host_wins) <= 1);
  SECTION("layers whose experts are all there are judged on their own") {
    CHECK(run(policy, work_of(1, 8, 0), 1000, device_wins) >= 996);
  }
  SECTION("a change is noticed") {
    static_cast<void>(run(policy, work_of(1), 5000, device_wins));
    CHECK(run(policy, work_of(1), 100, device_wins) >= 99);
  }
}

TEST_CASE("a slow first try does not decide") {
  dispatch::any policy{"auto"};
  int calls = 0;
  auto const slow_start = [&](compute_side side) {
    if (side == compute_side::device) { return ++calls == 1 ? 1.0 : 0.001; }
    return 0.01;
  };
  CHECK(run(policy, work_of(4), 100, slow_start) >= 98);
}

TEST_CASE("other names are refused with those that work") {
  for (auto const* text : {"",
                           "gpu",
                           "min-batch",
                           "min-batch:",
                           "min-batch:0",
                           "min-batch:x1",
                           "min-batch:3x",
                           "min-batch:-1",
                           "min-batch:99999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(dispatch::any{text}, contract_error);
  }
  try {
    static_cast<void>(dispatch::any{"gpu"});
  } catch (contract_error const& failed) {
    CHECK(std::string{failed.what()}.find("min-batch:N") != std::string::npos);
  }
}
