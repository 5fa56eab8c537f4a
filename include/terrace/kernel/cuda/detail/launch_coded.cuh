// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/coded_experts.cuh>
#include <terrace/kernel/cuda/detail/exact_experts.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Experts with 8-bit codes of their inputs, up to eight tokens.
namespace terrace::kernel::cuda::detail {

[[nodiscard]] inline bool takes_codes(numerics mode,
                                      expert_shape const& shape,
                                      std::size_t tokens) {
  auto const takes = [](matrix_layout const& w) { return takes_codes(w.type, w.grid); };
  return mode == numerics::fast && tokens <= most_coded_tokens && takes(shape.gate) &&
         takes(shape.up) && takes(shape.down);
}

/// What the scratch memory holds: codes of the gated rows, and where gate and up differ in type the
/// rows of both.
struct coded_scratch {
  std::size_t codes;  ///< how many, padding included
  std::size_t rows_at;
  std::size_t rows;  ///< values of gate's rows, and of up's
  std::size_t bytes;

  coded_scratch(expert_shape const& shape, std::size_t pairs) {
    codes = pairs * ((shape.gate.rows + code_columns - 1) / code_columns) * code_columns;
    rows_at = codes + codes / code_columns * (sizeof(float) + sizeof(std::uint32_t));
    rows = shape.gate.type == shape.up.type ? 0 : pairs * shape.gate.rows;
    bytes = rows_at + 2 * rows * sizeof(float);
  }
};

inline void launch_coded_pairs(expert_call const& call,
                               quant_type type,
                               coded_work const& work,
                               pair_window const& window) {
  with_coded_kernel(type, call.x.tokens, [&](auto one, auto tokens) {
    constexpr quant_type kind = decltype(one)::value;
    constexpr unsigned most = decltype(tokens)::value;
    std::size_t const jobs = (work.w.rows + paired_rows - 1) / paired_rows * window.count;
    shim::launch(coded_pairs_kernel<kind, most>,
                 {.grid = stream_grid<most>(jobs),
                  .block = stream_threads,
                  .shared_bytes = stream_warps * ring_bytes<kind, most>,
                  .overlaps = true},
                 call.on,
                 work,
                 window);
  });
}

inline void launch_coded_gate(expert_call const& call,
                              quant_type type,
                              gated_work const& work,
                              pair_window const& window) {
  with_coded_kernel(type, call.x.tokens, [&](auto one, auto tokens) {
    constexpr quant_type kind = decltype(one)::value;
    constexpr unsigned most = decltype(tokens)::value;
    std::size_t const jobs =
        (work.gate.rows + gated_rows - 1) / gated_rows * stream_warps * window.count;
    shim::launch(coded_gate_kernel<kind, most>,
                 {.grid = stream_grid<most>(jobs),
                  .block = stream_threads,
                  .shared_bytes = stream_warps * ring_bytes<kind, most>,
                  .overlaps = true},
                 call.on,
                 work,
                 window);
  });
}

/// A warp per group of 32 values.
static __global__ void gate_and_encode_kernel(gated_activation how,
                                              float const* __restrict__ gate,
                                              float const* __restrict__ up,
                                              std::size_t pairs,
                                              std::size_t rows,
                                              coded_rows to) {
  unsigned const lane = threadIdx.x % warp_threads;
  std::size_t const groups = (rows + code_columns - 1) / code_columns;
  std::size_t const step = loop_step() / warp_threads;
  for (std::size_t i = loop_first() / warp_threads; i < pairs * groups; i += step) {
    std::size_t const row = i % groups * code_columns + lane;
    std::size_t const at = i / groups * rows + row;
    to.write(i, lane, encode_group(row < rows ? gated_value(how, gate[at], up[at]) : 0.0F));
  }
}

/// Gate, up and what joins them, as codes.
inline void gate_pairs(expert_call const& call,
                       coded_scratch const& plan,
                       gated_work const& work,
                       pair_window const& window) {
  expert_shape const& shape = call.shape;
  if (shape.gate.type == shape.up.type) {
    launch_coded_gate(call, shape.gate.type, work, window);
    return;
  }
  auto* const gate = reinterpret_cast<float*>(static_cast<std::byte*>(call.scratch) + plan.rows_at);
  float* const up = gate + plan.rows;
  launch_coded_pairs(call, shape.gate.type, {work.gate, work.in, gate}, window);
  launch_coded_pairs(call, shape.up.type, {work.up, work.in, up}, window);
  shim::launch(gate_and_encode_kernel,
               {.grid = loop_blocks(window.count * shape.gate.rows), .block = loop_threads},
               call.on,
               shape.activation,
               static_cast<float const*>(gate),
               static_cast<float const*>(up),
               static_cast<std::size_t>(window.count),
               static_cast<std::size_t>(shape.gate.rows),
               work.to);
}

inline void coded_expert_rows(expert_call const& call) {
  expert_shape const& shape = call.shape;
  std::size_t const pairs = call.x.tokens * shape.top_k;
  coded_scratch const plan{shape, pairs};
  auto const inner = coded_rows::in(call.scratch, plan.codes);
  auto const groups = static_cast<std::uint32_t>(plan.codes / code_columns / pairs);
  gated_work gating{.gate = coded_matrix_of(shape.gate, 0),
                    .up = coded_matrix_of(shape.up, 1),
                    .in = {call.x.codes,
                           call.x.scales,
                           call.x.sums,
                           static_cast<std::uint32_t>(call.x.pitch / code_columns)},
                    .how = shape.activation,
                    .to = inner};
  coded_work down{.w = coded_matrix_of(shape.down, 2),
                  .in = {inner.codes, inner.scales, inner.sums, groups},
                  .out = call.rows};
  for (std::size_t first = 0; first < pairs; first += most_grouped_pairs) {
    pair_window window{.table = call.table,
                       .ids = call.ids,
                       .experts = static_cast<std::uint32_t>(shape.experts),
                       .layer = shape.layer,
                       .first = static_cast<std::uint32_t>(first),
                       .count = static_cast<std::uint32_t>(
                           std::min<std::size_t>(most_grouped_pairs, pairs - first)),
                       .pairs_an_in = static_cast<std::uint32_t>(shape.top_k),
                       .settled = false,
                       .fault = call.fault};
    gate_pairs(call, plan, gating, window);
    window.pairs_an_in = 1;
    window.settled = true;
    launch_coded_pairs(call, shape.down.type, down, window);
    std::size_t const done = window.count;
    gating.to = inner.from_group((first + done) * groups);
    down.in = down.in.from_row(done);
    down.out += done * shape.down.rows;
  }
}

}  // namespace terrace::kernel::cuda::detail
