// SPDX-License-Identifier: Apache-2.0
// Decoding and encoding one row of each type, in cache: values per second, and bytes of blocks read
// or written per second.
#include <terrace/core/quant_type.hpp>
#include <terrace/quant/decode.hpp>
#include <terrace/quant/encode.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

using terrace::quant_type;

constexpr std::uint64_t columns = 4096;

std::vector<float> weights() {
  std::mt19937 random{1};
  std::normal_distribution<float> normal;
  std::vector<float> x(columns);
  for (auto& value : x) { value = normal(random); }
  return x;
}

void count(benchmark::State& state, quant_type type) {
  auto const rows = static_cast<std::int64_t>(state.iterations());
  state.SetItemsProcessed(rows * static_cast<std::int64_t>(columns));
  state.SetBytesProcessed(rows * static_cast<std::int64_t>(terrace::row_bytes(type, columns)));
}

void decode(benchmark::State& state, quant_type type) {
  std::vector<std::byte> blocks(terrace::row_bytes(type, columns), std::byte{0x35});
  if (terrace::quant::is_encodable(type)) {
    terrace::quant::encode_row(type, weights(), blocks.data());
  }
  std::vector<float> y(columns);
  for (auto _ : state) {
    terrace::quant::decode_blocks(type, blocks.data(), columns, y.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  count(state, type);
}

void encode(benchmark::State& state, quant_type type) {
  auto const x = weights();
  std::vector<std::byte> blocks(terrace::row_bytes(type, columns));
  for (auto _ : state) {
    terrace::quant::encode_row(type, x, blocks.data());
    benchmark::DoNotOptimize(blocks.data());
    benchmark::ClobberMemory();
  }
  count(state, type);
}

}  // namespace

int main(int argc, char** argv) {
  for (auto const& traits : terrace::quant_table) {
    auto const add = [&](std::string const& operation, auto run) {
      std::string const title =
          "quant/" + operation + "/" + std::string{traits.name} + "/columns:4096";
      benchmark::RegisterBenchmark(title.c_str(),
                                   [run, type = traits.type](auto& state) { run(state, type); });
    };
    add("decode", decode);
    if (terrace::quant::is_encodable(traits.type)) { add("encode", encode); }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
