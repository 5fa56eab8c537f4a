// SPDX-License-Identifier: Apache-2.0
// Matrix-vector and matrix-matrix products over weights far larger than the caches.
//
//   kernel/matvec/TYPE/NUMERICS      one token, each product on another part of 1 GiB; `share` is
//   the speed of a plain
//                                    sum over as many bytes, measured between the products, that
//                                    this one reaches
//   kernel/matmul/TYPE/NUMERICS/tokens:N   many tokens on one matrix; counts multiply-adds

#include "kernel/support.hpp"
#include "plain_sum.hpp"

#include <terrace/kernel/cpu/cpu.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace terrace;
using bench::all_threads;
using bench::clock_type;
using bench::seconds_since;
using bench::time_plain_sum;

/// Copies of one matrix, as many as fill `bytes`.
struct copies {
  std::vector<std::byte> data;
  std::vector<matrix_view> views;

  copies(test::matrix const& one, std::size_t bytes) {
    std::size_t const each = one.view.rows * row_bytes(one.view.type, one.view.cols);
    data.resize(bytes);
    for (std::size_t at = 0; at + each <= bytes; at += each) {
      std::memcpy(data.data() + at, one.view.data, each);
      views.push_back(one.view);
      views.back().data = data.data() + at;
    }
  }
};

void matvec(benchmark::State& state, quant_type type, numerics mode) {
  std::size_t const rows = 4096;
  std::size_t const cols = 4096;
  test::generator random{1};
  auto const one = test::random_matrix(type, rows, cols, random);
  copies const weights{one, std::size_t{1} << 30U};
  auto const x = test::random_floats(random, cols);
  std::vector<float> y(rows);
  std::size_t const bytes = rows * row_bytes(type, cols);
  kernel::cpu::activations input;
  double product_s = 0;
  double sum_s = 0;
  std::size_t next = 0;
  for (auto _ : state) {
    auto const start = clock_type::now();
    input.assign(all_threads(), mode, x.data(), 1, cols, cols);
    kernel::cpu::matmul(all_threads(), weights.views[next], input, y.data(), rows);
    double const elapsed = seconds_since(start);
    benchmark::DoNotOptimize(y.data());
    state.SetIterationTime(elapsed);
    product_s += elapsed;
    next = (next + 1) % weights.views.size();
    sum_s += time_plain_sum(weights.views[next].data, bytes);
    next = (next + 1) % weights.views.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
  state.counters["share"] = sum_s / product_s;
}

void matmul(benchmark::State& state, quant_type type, numerics mode) {
  std::size_t const rows = 1536;
  std::size_t const cols = static_cast<std::size_t>(state.range(1));
  auto const tokens = static_cast<std::size_t>(state.range(0));
  test::generator random{1};
  auto const w = test::random_matrix(type, rows, cols, random);
  auto const x = test::random_floats(random, tokens * cols);
  std::vector<float> y(tokens * rows);
  kernel::cpu::activations input;
  for (auto _ : state) {
    input.assign(all_threads(), mode, x.data(), tokens, cols, cols);
    kernel::cpu::matmul(all_threads(), w.view, input, y.data(), rows);
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["mac"] = benchmark::Counter(static_cast<double>(rows * cols * tokens),
                                             benchmark::Counter::kIsIterationInvariantRate);
}

bool const registered = [] {
  std::vector<quant_type> types(std::begin(test::integer_types), std::end(test::integer_types));
  types.insert(types.end(), {quant_type::f32, quant_type::f16, quant_type::bf16});
  for (auto const mode : {numerics::fast, numerics::exact}) {
    for (auto const type : types) {
      std::string const name = std::string{name_of(type)} + "/" + std::string{name_of(mode)};
      benchmark::RegisterBenchmark(("kernel/matvec/" + name).c_str(), matvec, type, mode)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("kernel/matmul/" + name).c_str(), matmul, type, mode)
          ->ArgNames({"tokens", "cols"})
          ->Args({4, 4096})
          ->Args({16, 4096})
          ->Args({512, 4096})
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
