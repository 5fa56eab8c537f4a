// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/row_stream.cuh>
#include <terrace/shim/cuda.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace terrace::kernel::cuda::detail {

/// Types with products of 8-bit codes: those whose numbers come in blocks.
template <quant_type Type>
concept coded_type = !plain_type<Type>;

/// Whether `fast` products of up to most_coded_tokens multiply codes: the layout is one that files
/// have. Others are multiplied with float32 values in both numerics.
[[nodiscard]] inline bool takes_codes(quant_type type, scale_grid grid) {
  bool const apart = type == quant_type::mxfp4_packed || type == quant_type::int4_g32;
  return traits_of(type).block_elements > 1 &&
         grid == (apart ? scale_grid::per_group32 : scale_grid::none);
}

/// One matrix, or the same one of every expert of a layer.
struct coded_matrix {
  std::size_t data_offset;
  std::size_t scale_offset;
  std::byte const* scales;  ///< null where they are at scale_offset
  quant_type scale_type;
  bool has_scales;
  std::uint32_t rows;
  std::uint32_t units;
  unsigned number;  ///< among those of an expert
};

/// Errors: what check_layout throws.
[[nodiscard]] inline coded_matrix coded_matrix_of(matrix_layout const& w, unsigned number) {
  check_layout(w, true);
  return {.data_offset = w.data_offset,
          .scale_offset = w.scale_offset,
          .scales = nullptr,
          .scale_type = w.scale_type,
          .has_scales = w.grid != scale_grid::none,
          .rows = static_cast<std::uint32_t>(w.rows),
          .units = static_cast<std::uint32_t>(w.cols / unit_elements),
          .number = number};
}

[[nodiscard]] inline coded_matrix coded_matrix_of(matrix_view const& w) {
  check_layout(layout_of(w), w.scales != nullptr);
  coded_matrix made = coded_matrix_of(layout_of(w), 0);
  made.scales = w.scales;
  return made;
}

/// Calls visit(type, tokens), both as integral constants, for a type that takes codes.
template <class Visit>
void with_coded_kernel(quant_type type, std::size_t tokens, Visit&& visit) {
  with_type(type, [&](auto one) {
    if constexpr (coded_type<decltype(one)::value>) {
      if (tokens == 1) {
        visit(one, std::integral_constant<unsigned, 1>{});
      } else {
        visit(one, std::integral_constant<unsigned, most_coded_tokens>{});
      }
    }
  });
}

/// Inputs that share a matrix, and where they and their products are.
struct row_group {
  std::byte const* block;
  float multiplier[3];
  std::uint8_t count;
  std::uint8_t in[most_coded_tokens];
  std::uint8_t out[most_coded_tokens];
};

/// Makes row `row` of the group's matrix half of a pair.
template <quant_type Type>
__device__ __forceinline__ void set_row(row_pair& pair,
                                        unsigned which,
                                        coded_matrix const& w,
                                        row_group const& group,
                                        std::uint32_t row) {
  pair.data[which] = group.block + w.data_offset + row * row_pitch<Type>(w.units * unit_elements);
  pair.scale_type[which] = w.scale_type;
  pair.scales[which] = nullptr;
  if (w.has_scales) {
    std::byte const* const all = w.scales != nullptr ? w.scales : group.block + w.scale_offset;
    pair.scales[which] = all + static_cast<std::size_t>(row) * w.units * scale_width(w.scale_type);
  }
}

/// Products of groups with all rows of their matrices, two rows a job.
struct coded_work {
  coded_matrix w;
  coded_inputs in;
  float* out;  ///< [outputs, w.rows]
};

/// A warp's share of the work: consecutive pairs of rows.
template <quant_type Type, unsigned Tokens>
struct product_jobs {
  coded_work const& work;
  row_group const* groups;
  unsigned first;
  unsigned last;

  __device__ product_jobs(coded_work const& what, row_group const* all, unsigned groups_there)
      : work{what}, groups{all} {
    std::uint64_t const jobs = static_cast<std::uint64_t>(groups_there) * pairs();
    std::uint64_t const warps = static_cast<std::uint64_t>(gridDim.x) * stream_warps;
    std::uint64_t const warp =
        static_cast<std::uint64_t>(blockIdx.x) * stream_warps + threadIdx.x / warp_threads;
    first = static_cast<unsigned>(jobs * warp / warps);
    last = static_cast<unsigned>(jobs * (warp + 1) / warps);
  }
  [[nodiscard]] __device__ __forceinline__ unsigned pairs() const {
    return (work.w.rows + paired_rows - 1) / paired_rows;
  }
  [[nodiscard]] __device__ __forceinline__ row_group const& group(unsigned job) const {
    return groups[(first + job) / pairs()];
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t row(unsigned job) const {
    return (first + job) % pairs() * paired_rows;
  }

  [[nodiscard]] __device__ unsigned count() const { return last - first; }
  [[nodiscard]] __device__ __forceinline__ row_pair pair(unsigned job) const {
    row_pair made;
    std::uint32_t const one = row(job);
    set_row<Type>(made, 0, work.w, group(job), one);
    set_row<Type>(made, 1, work.w, group(job), one + 1 < work.w.rows ? one + 1 : one);
    return made;
  }
  [[nodiscard]] __device__ __forceinline__ row_inputs inputs(unsigned job) const {
    row_group const& one = group(job);
    return {work.in, one.in, one.count};
  }
  __device__ __forceinline__ void finish(unsigned job, float const (&sums)[2][Tokens]) const {
    if (threadIdx.x % warp_threads != 0) { return; }
    row_group const& one = group(job);
    float const multiplier = one.multiplier[work.w.number];
    std::uint32_t const at = row(job);
#pragma unroll
    for (unsigned t = 0; t < Tokens; ++t) {
      if (t >= one.count) { break; }
      float* const to = work.out + static_cast<std::size_t>(one.out[t]) * work.w.rows + at;
      to[0] = __fmul_rn(sums[0][t], multiplier);
      if (at + 1 < work.w.rows) { to[1] = __fmul_rn(sums[1][t], multiplier); }
    }
  }
};

/// Multiplies the groups, which all threads of the block see.
template <quant_type Type, unsigned Tokens>
__device__ __forceinline__ void multiply_groups(coded_work const& work,
                                                row_group const* groups,
                                                unsigned count,
                                                typename units<Type>::tables const& tables) {
  std::byte* const ring =
      dynamic_shared<std::byte>() + threadIdx.x / warp_threads * ring_bytes<Type, Tokens>;
  product_jobs<Type, Tokens> jobs{work, groups, count};
  row_stream<Type, Tokens>{ring, work.w.units, tables}.run(jobs);
}

/// Blocks that run on a multiprocessor at a time.
template <unsigned Tokens>
inline constexpr unsigned stream_blocks = Tokens == 1 ? 4 : 2;

/// Blocks for `jobs` pairs of rows: as many as run at a time, or one pair for each warp.
template <unsigned Tokens>
[[nodiscard]] unsigned stream_grid(std::size_t jobs) {
  int device = 0;
  int multiprocessors = 0;
  shim::check(cudaGetDevice(&device), "asking for the current CUDA device");
  shim::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
              "asking for the number of multiprocessors");
  std::size_t const most = static_cast<std::size_t>(multiprocessors) * stream_blocks<Tokens>;
  std::size_t const needed = (jobs + stream_warps - 1) / stream_warps;
  return static_cast<unsigned>(needed < most ? needed : most);
}

/// One matrix and up to Tokens inputs.
template <quant_type Type, unsigned Tokens>
static __global__ void __launch_bounds__(stream_threads, stream_blocks<Tokens>)
    coded_matrix_kernel(coded_work work, std::byte const* data, float multiplier, unsigned tokens) {
  __shared__ row_group group;
  __shared__ typename units<Type>::tables tables;
  if (threadIdx.x == 0) {
    group.block = data;
    group.multiplier[0] = multiplier;
    group.count = static_cast<std::uint8_t>(tokens);
    for (unsigned t = 0; t < most_coded_tokens; ++t) {
      group.in[t] = static_cast<std::uint8_t>(t);
      group.out[t] = static_cast<std::uint8_t>(t);
    }
  }
  tables.fill();
  __syncthreads();
  wait_for_kernels_before();
  multiply_groups<Type, Tokens>(work, &group, 1, tables);
}

}  // namespace terrace::kernel::cuda::detail
