// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what attention.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/attention.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/attention.hpp>
#include <terrace/kernel/cuda/detail/attend_exact.cuh>
#include <terrace/kernel/cuda/detail/attend_work.cuh>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

/// Most tokens whose splits are computed apart: more fill the device by themselves.
inline constexpr std::size_t most_split_tokens = 8;
/// Most scratch for parts; longer contexts are computed whole.
inline constexpr std::size_t most_part_bytes = std::size_t{256} << 20U;

[[nodiscard]] inline std::size_t splits_of(std::size_t positions) {
  return (positions + attention_split - 1) / attention_split;
}
/// Of states and values together.
[[nodiscard]] inline std::size_t part_bytes(attention_shape const& shape, std::size_t positions) {
  return shape.tokens * shape.heads * splits_of(positions) *
         (sizeof(softmax_state) + shape.d_v * sizeof(float));
}
[[nodiscard]] inline bool in_parts(attention_shape const& shape, std::size_t positions) {
  return shape.tokens <= most_split_tokens && splits_of(positions) > 1 &&
         part_bytes(shape, positions) <= most_part_bytes;
}

template <bool Half, unsigned Rows, unsigned Wide>
void launch_exact(stream_ref on, attend_work const& work, bool parts) {
  auto const rows = work.shape.tokens * (work.shape.heads / work.shape.kv_heads);
  auto const tiles = static_cast<unsigned>((rows + Rows - 1) / Rows);
  auto const kv_heads = static_cast<unsigned>(work.shape.kv_heads);
  if (parts) {
    shim::launch(attend_exact_kernel<Half, Rows, Wide, false>,
                 {.grid = dim3{work.splits, tiles, kv_heads}, .block = exact_threads},
                 on,
                 work);
  } else {
    shim::launch(attend_exact_kernel<Half, Rows, Wide, true>,
                 {.grid = dim3{tiles, kv_heads}, .block = exact_threads},
                 on,
                 work);
  }
}

template <bool Half>
void launch_exact(stream_ref on, attend_work const& work, bool parts) {
  std::size_t const rows = work.shape.tokens * (work.shape.heads / work.shape.kv_heads);
  bool const wide = work.shape.d_v > exact_threads;
  if (rows <= 8) {
    wide ? launch_exact<Half, 8, 2>(on, work, parts) : launch_exact<Half, 8, 1>(on, work, parts);
  } else {
    wide ? launch_exact<Half, 16, 2>(on, work, parts) : launch_exact<Half, 16, 1>(on, work, parts);
  }
}

inline void check_call(attention_call const& call) {
  auto const& shape = call.shape;
  if (shape.kv_heads == 0 || shape.heads == 0 || shape.heads % shape.kv_heads != 0) {
    throw contract_error{std::to_string(shape.heads) + " query heads cannot share " +
                         std::to_string(shape.kv_heads) + " key heads evenly"};
  }
  if (shape.d_v > most_value_dims) {
    throw contract_error{"attention on a CUDA device holds at most " +
                         std::to_string(most_value_dims) + " values of a head; this one has " +
                         std::to_string(shape.d_v)};
  }
  call.cache.require(shape.first_position + shape.tokens);
}

}  // namespace detail

std::size_t attention_scratch_bytes(attention_shape const& shape, std::size_t positions) noexcept {
  return detail::in_parts(shape, positions) ? detail::part_bytes(shape, positions) : 0;
}

void attention(stream_ref on, numerics /*mode*/, attention_call const& call) {
  detail::check_call(call);
  auto const& shape = call.shape;
  if (shape.tokens == 0) { return; }
  std::size_t const positions = call.cache.pages.size() * call.cache.layout.page_tokens;
  bool const parts = detail::in_parts(shape, positions);
  std::size_t const splits = detail::splits_of(positions);
  std::size_t const slots = shape.tokens * shape.heads * splits;
  auto* const states = static_cast<detail::softmax_state*>(call.scratch);
  detail::attend_work const work{.shape = shape,
                                 .state = call.state,
                                 .q = call.q,
                                 .cache = detail::page_table{call.cache},
                                 .out = call.out,
                                 .part_states = states,
                                 .part_values = reinterpret_cast<float*>(states + slots),
                                 .splits = static_cast<std::uint32_t>(splits)};
  call.cache.layout.half ? detail::launch_exact<true>(on, work, parts)
                         : detail::launch_exact<false>(on, work, parts);
  if (parts) {
    shim::launch(detail::merge_parts_kernel,
                 {.grid = static_cast<unsigned>(shape.tokens * shape.heads),
                  .block = shape.d_v <= 128 ? 128U : 256U},
                 on,
                 work);
  }
}

}  // namespace terrace::kernel::cuda
