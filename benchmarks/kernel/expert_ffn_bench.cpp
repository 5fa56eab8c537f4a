// SPDX-License-Identifier: Apache-2.0
// The routed experts of one layer at the widths of published models.
//
//   kernel/expert_ffn/MODEL/TYPE/NUMERICS/tokens:N   each token takes as many experts as the model
//   gives it, every expert one token as far as they go round, and each round takes other experts
//   from 1 GiB of them; `share` is the speed of a plain sum over as many bytes, measured between
//   the rounds, that this one reaches

#include "kernel/support.hpp"
#include "plain_sum.hpp"

#include <terrace/core/gated_activation.hpp>
#include <terrace/kernel/cpu/cpu.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace terrace;

struct layer_shape {
  char const* name;
  std::size_t width, inner, top_k;  ///< what experts read and write, their inner width
  gated_activation activation;
};
constexpr layer_shape layers[] = {
    {"kimi-k3", 3584, 3072, 16, {gated_activation::kind::situ, 4, 25}},
    {"kimi-k2", 7168, 2048, 8, {}},
    {"minimax-m2", 3072, 1536, 8, {}},
};

/// One expert's bytes with its matrices, scales that are kept apart behind their data.
class expert {
 public:
  expert(quant_type type, layer_shape const& shape, test::generator& random) {
    for (std::size_t i = 0; i < 3; ++i) {
      bool const down = i == 2;
      matrices_[i] = test::random_matrix(
          type, down ? shape.width : shape.inner, down ? shape.inner : shape.width, random);
      bytes_ += matrices_[i].data.size() - 1 + matrices_[i].scales.size();
    }
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// A copy at `to`; returns its matrices there.
  [[nodiscard]] std::vector<matrix_view> copy(std::byte* to) const {
    std::vector<matrix_view> views;
    for (auto const& one : matrices_) {
      auto view = one.view;
      std::memcpy(to, view.data, one.data.size() - 1);
      view.data = to;
      to += one.data.size() - 1;
      if (!one.scales.empty()) {
        std::memcpy(to, one.scales.data(), one.scales.size());
        view.scales = to;
        to += one.scales.size();
      }
      views.push_back(view);
    }
    return views;
  }

 private:
  test::matrix matrices_[3];
  std::size_t bytes_ = 0;
};

void expert_ffn(benchmark::State& state, layer_shape const& shape, quant_type type, numerics mode) {
  auto const tokens = static_cast<std::size_t>(state.range(0));
  std::size_t const chosen = tokens * shape.top_k;
  test::generator random{1};
  expert const one{type, shape, random};
  std::size_t const held = std::max((std::size_t{1} << 30U) / one.bytes(), 2 * chosen);
  std::vector<std::byte> memory(held * one.bytes());
  std::vector<std::vector<matrix_view>> experts;
  for (std::size_t i = 0; i < held; ++i) {
    experts.push_back(one.copy(memory.data() + i * one.bytes()));
  }
  auto const x = test::random_floats(random, tokens * shape.width);
  std::vector<std::uint32_t> token_of(chosen);
  for (std::size_t i = 0; i < chosen; ++i) {
    token_of[i] = static_cast<std::uint32_t>(i / shape.top_k);
  }
  std::vector<float> out(chosen * shape.width);
  kernel::cpu::activations input;
  kernel::cpu::ffn_scratch scratch;
  std::vector<kernel::cpu::expert_task> tasks;
  double kernel_s = 0, sum_s = 0;
  std::size_t next = 0;
  for (auto _ : state) {
    tasks.clear();
    if (next + 2 * chosen > held) { next = 0; }
    for (std::size_t i = 0; i < chosen; ++i) {
      auto const& m = experts[next + i];
      tasks.push_back({m[0], m[1], m[2], std::span{&token_of[i], 1}, out.data() + i * shape.width});
    }
    auto const start = bench::clock_type::now();
    input.assign(bench::all_threads(), mode, x.data(), tokens, shape.width, shape.width);
    kernel::cpu::expert_ffn(bench::all_threads(), input, tasks, scratch, shape.activation);
    double const elapsed = bench::seconds_since(start);
    benchmark::DoNotOptimize(out.data());
    state.SetIterationTime(elapsed);
    kernel_s += elapsed;
    next += chosen;
    sum_s += bench::time_plain_sum(memory.data() + next * one.bytes(), chosen * one.bytes());
    next += chosen;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * chosen * one.bytes()));
  state.counters["share"] = sum_s / kernel_s;
}

bool const registered = [] {
  for (auto const& shape : layers) {
    for (auto const type : {quant_type::mxfp4, quant_type::mxfp4_packed, quant_type::q4_k}) {
      for (auto const mode : {numerics::fast, numerics::exact}) {
        std::string const name = std::string{"kernel/expert_ffn/"} + shape.name + "/" +
                                 std::string{name_of(type)} + "/" + std::string{name_of(mode)};
        benchmark::RegisterBenchmark(name.c_str(), expert_ffn, shape, type, mode)
            ->ArgName("tokens")
            ->Arg(1)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return true;
}();

}  // namespace
