// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/detail/row_stream.cuh>
#include <terrace/kernel/cuda/detail/weights.cuh>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Products of many bfloat16 inputs with rows of weights on tensor cores.
///
/// A block of threads multiplies up to 128 inputs with 256 rows; each warp has 32 rows to itself
/// and all the inputs. So a weight is decoded once for 128 inputs, by the very lane whose part of a
/// factor it is: within 32 columns, lane l holds octet l % 4 of row l / 4, in the order that the
/// octet has in the file, and inputs follow the same order. Both factors move through shared memory
/// two steps deep, the weights as they are encoded.
///
/// In the one order of sums, columns are taken by 16 in ascending steps: of every 32, first those
/// whose number modulo 8 is below 4, then the others.
namespace terrace::kernel::cuda::detail {

inline constexpr unsigned tile_inputs = 128;
inline constexpr unsigned tile_warps = 8;
inline constexpr unsigned tile_threads = tile_warps * warp_threads;
inline constexpr unsigned warp_rows = 32;
/// Columns of a step.
inline constexpr unsigned step_columns = 128;
inline constexpr unsigned step_units = step_columns / 32;

inline constexpr unsigned input_row_bytes = step_columns * sizeof(std::uint16_t);
inline constexpr unsigned input_slot_bytes = tile_inputs * input_row_bytes;

/// Bytes of the columns of a segment of weights, and how many steps it lasts.
template <quant_type Type>
struct tile_segment {
  static constexpr bool plain = plain_type<Type>;
  static constexpr unsigned block_elements = traits_of(Type).block_elements;
  static constexpr unsigned block_bytes = static_cast<unsigned>(traits_of(Type).block_bytes);
  static constexpr unsigned steps = block_elements > step_columns ? 2 : 1;
  static constexpr unsigned columns = steps * step_columns;
  static constexpr unsigned bytes = columns / block_elements * block_bytes;
  static constexpr unsigned pieces = (bytes + 14) / 16 + 1;
  static constexpr unsigned row_bytes = 16 * pieces;
  static constexpr bool has_scales =
      Type == quant_type::mxfp4_packed || Type == quant_type::int4_g32;
  static constexpr unsigned scale_pieces = has_scales ? (4 * step_units + 14) / 16 + 1 : 0;
  static constexpr unsigned slot_bytes = warp_rows * (row_bytes + 16 * scale_pieces);
  static constexpr unsigned shared_bytes = 2 * (input_slot_bytes + tile_warps * slot_bytes);
};

/// Types that tensor cores multiply; wider ones do not fit the shared memory, and no file has
/// matrices of them for which it matters.
template <quant_type Type>
inline constexpr bool tensor_type =
    Type == quant_type::f16 || Type == quant_type::bf16 || Type == quant_type::fp8_e4m3 ||
    (traits_of(Type).block_elements > 1 && Type != quant_type::q8_k);

[[nodiscard]] __device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
  __nv_bfloat162 const both = __floats2bfloat162_rn(low, high);
  return __bfloat16_as_ushort(both.x) |
         (static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y)) << 16U);
}

/// The inputs of a tile.
struct tile_inputs_view {
  std::uint16_t const* halves;
  std::size_t pitch;          ///< values from row to row, whole units
  std::uint32_t const* rows;  ///< in shared memory: [count]
  unsigned count;
};

/// Sums of a warp: of input 16m + l / 4 (+ 8 for the upper two) and row 8n + 2 (l % 4) (and the
/// next).
using tile_sums = float[tile_inputs / 16][warp_rows / 8][4];

/// The rows of a block of threads: of one matrix, or as many of each of two, side by side in every
/// warp.
template <bool Two>
struct tile_rows {
  static constexpr unsigned of_matrix = Two ? warp_rows / 2 : warp_rows;
  std::byte const* data[2];
  outer_scales scales[2];  ///< alike but for the address; without multipliers
  std::uint32_t rows;
  std::uint32_t first;

  [[nodiscard]] __device__ __forceinline__ std::byte const* matrix(unsigned row) const {
    return Two && row >= of_matrix ? data[1] : data[0];
  }
  [[nodiscard]] __device__ __forceinline__ std::byte const* scales_at(unsigned row) const {
    return Two && row >= of_matrix ? scales[1].at : scales[0].at;
  }
  /// Number of a warp's row; past the last one, the last one's.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t number(unsigned row) const {
    std::uint32_t const wanted = first + threadIdx.x / warp_threads * of_matrix + row % of_matrix;
    return wanted < rows ? wanted : rows - 1;
  }
};

/// A warp's walk over the columns.
template <quant_type Type, bool Two>
class tile_walk {
  using segment = tile_segment<Type>;

 public:
  __device__ tile_walk(std::byte* shared,
                       tile_inputs_view const& in,
                       tile_rows<Two> const& rows,
                       std::uint32_t cols)
      : inputs_{shared},
        weights_{shared + 2 * input_slot_bytes +
                 threadIdx.x / warp_threads * 2 * segment::slot_bytes},
        in_{in},
        rows_{rows},
        cols_{cols} {
#pragma unroll
    for (unsigned n = 0; n < warp_rows / 8; ++n) { leads_[n] = past_16(data(own_row(n))); }
  }

  __device__ __forceinline__ void run(tile_sums& sums) const {
    unsigned const steps = (cols_ + step_columns - 1) / step_columns;
    start(0);
    for (unsigned step = 0; step < steps; ++step) {
      cp_async_wait<0>();
      __syncthreads();  // the step is here, and every warp is done with the one before
      if (step + 1 < steps) { start(step + 1); }
      multiply(step, sums);
    }
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ unsigned past_16(std::byte const* at) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 16);
  }
  /// The row whose octets this lane decodes for the n-th factor.
  [[nodiscard]] static __device__ __forceinline__ unsigned own_row(unsigned n) {
    return 8 * n + threadIdx.x % warp_threads / 4;
  }

  /// 16 bytes of an input row lie where warps reading eight rows at once meet no bank twice.
  [[nodiscard]] static __device__ __forceinline__ unsigned input_at(unsigned row, unsigned piece) {
    return row * input_row_bytes + 16 * (piece ^ (4 * (row % 2)));
  }

  __device__ __forceinline__ void start(unsigned step) const {
    constexpr unsigned row_pieces = input_row_bytes / 16;
    std::byte* const to = inputs_ + step % 2 * input_slot_bytes;
#pragma unroll
    for (unsigned i = 0; i < tile_inputs * row_pieces / tile_threads; ++i) {
      unsigned const at = threadIdx.x + i * tile_threads;
      unsigned const row = at / row_pieces;
      unsigned const piece = at % row_pieces;
      std::size_t const column = static_cast<std::size_t>(step) * step_columns + 8 * piece;
      if (row < in_.count && column < in_.pitch) {
        cp_async_16(to + input_at(row, piece), in_.halves + in_.rows[row] * in_.pitch + column);
      }
    }
    if (step % segment::steps == 0) { start_weights(step / segment::steps); }
    cp_async_commit();
  }

  __device__ __forceinline__ void start_weights(unsigned number) const {
    std::byte* const to = weights_ + number % 2 * segment::slot_bytes;
    std::uint32_t const first = number * segment::columns;
    std::uint32_t const columns =
        cols_ - first < segment::columns ? cols_ - first : segment::columns;
    unsigned const bytes = columns / segment::block_elements * segment::block_bytes;
    for (unsigned at = threadIdx.x % warp_threads; at < warp_rows * segment::pieces;
         at += warp_threads) {
      unsigned const row = at / segment::pieces;
      unsigned const piece = at % segment::pieces;
      std::byte const* const from = data(row) + static_cast<std::size_t>(number) * segment::bytes;
      unsigned const lead = past_16(from);
      if (16 * piece < lead + bytes) {
        cp_async_16(to + row * segment::row_bytes + 16 * piece, from - lead + 16 * piece);
      }
    }
    if constexpr (segment::has_scales) {
      for (unsigned at = threadIdx.x % warp_threads; at < warp_rows * segment::scale_pieces;
           at += warp_threads) {
        unsigned const row = at / segment::scale_pieces;
        unsigned const piece = at % segment::scale_pieces;
        std::byte const* const from = scale(row, first / 32);
        unsigned const lead = past_16(from);
        if (16 * piece < lead + columns / 32 * scale_width(rows_.scales[0].type)) {
          cp_async_16(
              to + warp_rows * segment::row_bytes + 16 * (row * segment::scale_pieces + piece),
              from - lead + 16 * piece);
        }
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ std::byte const* data(unsigned row) const {
    return rows_.matrix(row) + rows_.number(row) * row_pitch<Type>(cols_);
  }
  [[nodiscard]] __device__ __forceinline__ std::byte const* scale(unsigned row,
                                                                  unsigned unit) const {
    outer_scales const& like = rows_.scales[0];
    return rows_.scales_at(row) +
           scale_width(like.type) *
               (static_cast<std::size_t>(rows_.number(row)) * like.across + unit);
  }

  /// Eight columns of an input and of the one eight rows further.
  struct input_pair {
    uint4 low;
    uint4 high;
  };
  [[nodiscard]] static __device__ __forceinline__ input_pair load_inputs(std::byte const* from,
                                                                         unsigned row,
                                                                         unsigned piece) {
    return {*reinterpret_cast<uint4 const*>(from + input_at(row, piece)),
            *reinterpret_cast<uint4 const*>(from + input_at(row + 8, piece))};
  }

  __device__ __forceinline__ void multiply(unsigned step, tile_sums& sums) const {
    std::byte const* const from = inputs_ + step % 2 * input_slot_bytes;
    std::uint32_t const left = cols_ - step * step_columns;
    unsigned const units = left < step_columns ? (left + 31) / 32 : step_units;
    unsigned const lane = threadIdx.x % warp_threads;
    for (unsigned unit = 0; unit < units; ++unit) {
      std::uint32_t factors[warp_rows / 8][4];
#pragma unroll
      for (unsigned n = 0; n < warp_rows / 8; ++n) { decode(step, unit, n, factors[n]); }
      unsigned const piece = 4 * unit + lane % 4;
      input_pair next = load_inputs(from, lane / 4, piece);
#pragma unroll
      for (unsigned m = 0; m < tile_inputs / 16; ++m) {
        if (16 * m >= in_.count) { break; }
        input_pair const x = next;
        if (m + 1 <
            tile_inputs / 16) {  // rows past the count are there, and nobody uses their sums
          next = load_inputs(from, 16 * (m + 1) + lane / 4, piece);
        }
#pragma unroll
        for (unsigned n = 0; n < warp_rows / 8; ++n) {
          mma_m16n8k16_bf16(
              sums[m][n], {x.low.x, x.high.x, x.low.y, x.high.y}, {factors[n][0], factors[n][1]});
        }
#pragma unroll
        for (unsigned n = 0; n < warp_rows / 8; ++n) {
          mma_m16n8k16_bf16(
              sums[m][n], {x.low.z, x.high.z, x.low.w, x.high.w}, {factors[n][2], factors[n][3]});
        }
      }
    }
  }

  /// This lane's octet of a unit of the n-th factor, as bfloat16.
  __device__ __forceinline__ void decode(unsigned step,
                                         unsigned unit,
                                         unsigned n,
                                         std::uint32_t (&factor)[4]) const {
    unsigned const number = step / segment::steps;
    unsigned const row = own_row(n);
    unsigned const index = 4 * unit + threadIdx.x % 4;
    std::uint32_t const column = step * step_columns + octet_elements * index;
    std::byte const* const slot = weights_ + number % 2 * segment::slot_bytes;
    std::byte const* const from =
        slot + row * segment::row_bytes + (leads_[n] + number * segment::bytes) % 16;
    float values[octet_elements];
    if (plain_type<Type> && column >= cols_) {
      for (std::uint32_t& word : factor) { word = 0; }
      return;
    }
    decode_octet<Type>(from,
                       cols_ - number * segment::columns,
                       step % segment::steps * (step_columns / octet_elements) + index,
                       values);
    outer_scales const& like = rows_.scales[0];
    if constexpr (segment::has_scales) {
      std::byte const* const at =
          arrived(slot + warp_rows * segment::row_bytes + 16 * row * segment::scale_pieces,
                  scale(row, step * step_units)) +
          unit * scale_width(like.type);
      float const whole = like.type == quant_type::i8 ? 2.0F : 1.0F;  // E8M0 gives halves
      float const scale = scale_value(at, like.type);
#pragma unroll
      for (float& value : values) { value = whole * value * scale; }
    } else if (like.grid != scale_grid::none) {
      outer_scales mine = like;
      mine.at = rows_.scales_at(row);
      mine.apply(rows_.number(row), column, values);
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) { factor[i] = bf16_pair(values[2 * i], values[2 * i + 1]); }
  }

  std::byte* inputs_;
  std::byte* weights_;
  tile_inputs_view in_;
  tile_rows<Two> const& rows_;
  std::uint32_t cols_;
  unsigned leads_[warp_rows / 8];  ///< how far into 16 bytes this lane's rows begin
};

}  // namespace terrace::kernel::cuda::detail
