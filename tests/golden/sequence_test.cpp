// SPDX-License-Identifier: Apache-2.0
// What a model keeps of a sequence: the same however a prompt is cut, and brought back by a
// snapshot to the byte.
#include "support/golden_models.hpp"
#include "support/running_model.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

std::vector<std::int32_t> some_ids(std::size_t count, int seed) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((i * 131 + static_cast<std::size_t>(seed)) % 1900));
  }
  return ids;
}

/// The states of all layers, one after the other.
std::vector<std::byte> whole_state(running_model& model) {
  std::vector<std::byte> all;
  for (int layer = 0; layer < model.engine().plan().needs.layers; ++layer) {
    auto const one = model.pipeline().state(layer);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}
std::vector<float> as_floats(std::vector<std::byte> const& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEMPLATE_TEST_CASE("the state after a prompt does not depend on how it was cut",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  auto const weights = any_model(TestType::name);
  auto const ids = some_ids(150, 7);
  running_model whole{weights, {.prefill_chunk = 1024}};
  auto const logits = whole.logits(ids);
  auto const state = as_floats(whole_state(whole));
  for (int const chunk : {1, 7, 16, 64}) {
    INFO("chunks of " << chunk);
    running_model cut{weights, {.prefill_chunk = chunk}};
    CHECK(relative_distance(cut.logits(ids), logits) <= 1e-5);
    CHECK(relative_distance(as_floats(whole_state(cut)), state) <= 1e-5);
  }
}

/// Two texts go on from one beginning that ends inside a page of rows.
void check_snapshots(setup const& how, std::filesystem::path const& weights) {
  running_model model{weights, how};
  auto const beginning = some_ids(100, 3), one = some_ids(70, 5), other = some_ids(40, 11);
  static_cast<void>(model.logits(beginning));
  auto const state = whole_state(model);
  auto const kept = model.pipeline().snapshot();
  CHECK(kept.tokens() == beginning.size());
  auto const after_one = model.append(one);

  model.pipeline().restore(kept);
  CHECK(model.pipeline().position() == static_cast<int>(beginning.size()));
  CHECK(whole_state(model) == state);
  auto const after_other = model.append(other);
  model.pipeline().restore(kept);
  CHECK(whole_state(model) == state);
  CHECK(model.append(one) == after_one);
  model.pipeline().reset();
  model.pipeline().restore(kept);
  CHECK(model.append(other) == after_other);
  CHECK(model.engine().counters().front().peak_bytes <=
        model.engine().plan().fastest().memory.predicted_peak_bytes);

  auto straight = beginning;
  straight.insert(straight.end(), other.begin(), other.end());
  CHECK(relative_distance(model.logits(straight), after_other) <= 1e-5);
}

TEMPLATE_TEST_CASE("a restored sequence is the one that was kept, to the byte",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  auto const weights = any_model(TestType::name);
  check_snapshots({.snapshots = 1}, weights);
  check_snapshots({.mode = numerics::fast, .threads = 2, .context_tokens = 256, .snapshots = 1},
                  weights);
}

TEST_CASE("a snapshot is room that the plan counts", "[golden]") {
  auto const weights = any_model("kimi-k3-tiny");
  running_model without{weights, {.context_tokens = 64}};
  running_model with{weights, {.context_tokens = 64, .snapshots = 2}};
  // One page holds 64 tokens, so a snapshot takes as much as the sequence.
  CHECK(with.engine().plan().fastest().memory.state_bytes ==
        3 * without.engine().plan().fastest().memory.state_bytes);
}

TEST_CASE("a snapshot of another model is refused", "[golden]") {
  running_model one{any_model("kimi-k2-tiny"), {.snapshots = 1}};
  running_model other{any_model("llama-tiny")};
  static_cast<void>(one.logits(some_ids(3, 1)));
  auto const kept = one.pipeline().snapshot();
  CHECK_THROWS_AS(other.pipeline().restore(kept), contract_error);
}

}  // namespace
}  // namespace terrace::golden
