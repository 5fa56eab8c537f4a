// SPDX-License-Identifier: Apache-2.0
// What a policy costs per call with every expert of a 92-layer, 896-expert model resident.
#include <terrace/core/ids.hpp>
#include <terrace/evict/any.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::uint32_t layers = 92;
constexpr std::uint32_t experts = 896;
constexpr std::uint32_t top_k = 16;
constexpr std::size_t block_bytes = 1U << 20U;

std::vector<terrace::block_id> shuffled_blocks() {
  std::vector<terrace::block_id> ids;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    for (std::uint32_t expert = 0; expert < experts; ++expert) {
      ids.push_back(expert_block(terrace::layer_id{layer}, terrace::expert_id{expert}));
    }
  }
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64{1});
  return ids;
}

terrace::evict::any filled(std::string_view name, std::vector<terrace::block_id> const& ids) {
  terrace::evict::any policy{{std::string{name}}};
  for (auto const id : ids) { policy.admit(id, block_bytes); }
  return policy;
}

void touch(benchmark::State& state, std::string_view name) {
  auto const ids = shuffled_blocks();
  auto policy = filled(name, ids);
  std::size_t at = 0;
  for (auto _ : state) {
    policy.touch(ids[at]);
    if (++at == ids.size()) { at = 0; }
    if (at % (layers * top_k) == 0) { policy.tick(); }
  }
}

/// The level is full: one touch per hit, one eviction and admission per miss, three hits to a miss.
void replace(benchmark::State& state, std::string_view name) {
  auto ids = shuffled_blocks();
  auto const resident = ids.size() / 4;
  auto policy = filled(name, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(resident)});
  std::mt19937 random{2};
  auto const may_leave = [](terrace::block_id) { return true; };
  for (auto _ : state) {
    for (int hit = 0; hit < 3; ++hit) { policy.touch(ids[random() % resident]); }
    auto const victim = policy.victim(may_leave);
    if (!victim) {
      state.SkipWithError("no victim");
      break;
    }
    policy.forget(*victim);
    policy.admit(*victim, block_bytes);
    policy.tick();
  }
}

/// All but one block in sixteen are leased for good.
void victim_among_leased(benchmark::State& state, std::string_view name) {
  auto const ids = shuffled_blocks();
  auto policy = filled(name, ids);
  auto const may_leave = [](terrace::block_id id) { return index_of(id) % 16 == 0; };
  for (auto _ : state) {
    auto const victim = policy.victim(may_leave);
    if (!victim) {
      state.SkipWithError("no victim");
      break;
    }
    policy.forget(*victim);
    policy.admit(*victim, block_bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (std::string_view const name : terrace::evict::any::names) {
    auto const add = [name](std::string const& operation, auto run) {
      std::string const title = "evict/" + operation + "/" + std::string{name} + "/blocks:82432";
      benchmark::RegisterBenchmark(title.c_str(), [run, name](auto& state) { run(state, name); });
    };
    add("touch", touch);
    if (name == "pinned") { continue; }  // names no victim
    add("replace", replace);
    add("victim_among_leased", victim_among_leased);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
