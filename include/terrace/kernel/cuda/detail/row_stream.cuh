// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/detail/unit.cuh>
#include <terrace/kernel/cuda/detail/units_32.cuh>
#include <terrace/kernel/cuda/detail/units_iq.cuh>
#include <terrace/kernel/cuda/detail/units_k.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Products of encoded rows with coded inputs. Each warp streams its rows, two at a time, through a
/// ring of slots in shared memory of its own: file layouts have blocks of odd sizes at odd
/// addresses, which copies of 16 aligned bytes do not mind, and copies that are under way cost no
/// registers.
///
/// In the one order of sums, lane u % 32 of a warp takes unit u of a row, ascending; `warp_sum`
/// adds the lanes.
namespace terrace::kernel::cuda::detail {

/// Rows a warp works on at a time.
inline constexpr unsigned paired_rows = 2;
inline constexpr unsigned stream_warps = 8;
inline constexpr unsigned stream_threads = stream_warps * warp_threads;
/// Slots of a ring: one is read while the others are filled.
template <unsigned Tokens>
inline constexpr unsigned ring_slots = Tokens == 1 ? 2 : 3;

/// How much of a row is in a slot at a time.
template <quant_type Type>
struct segment_of {
  using block = typename octets<Type>::block;
  static constexpr unsigned block_units = block::elements / unit_elements;
  /// Powers of two, as many as let all blocks of threads that may run side by side do so.
  static constexpr unsigned units = [] {
    constexpr unsigned most_bytes = 1450;
    unsigned count = warp_threads;
    while (count < 8 * warp_threads && 2 * count / block_units * sizeof(block) <= most_bytes) {
      count *= 2;
    }
    return count;
  }();
  static constexpr unsigned bytes = units / block_units * sizeof(block);
  /// A segment that begins anywhere in 16 aligned bytes, and a word after it.
  static constexpr unsigned data_bytes = (bytes + 15 + 4 + 15) / 16 * 16;
  /// Types whose files keep the scales of units elsewhere bring those along.
  static constexpr bool has_scales =
      Type == quant_type::mxfp4_packed || Type == quant_type::int4_g32;
  static constexpr unsigned scale_bytes = has_scales ? (4 * units + 15 + 4 + 15) / 16 * 16 : 0;
  static constexpr unsigned slot_bytes = paired_rows * (data_bytes + scale_bytes);
};

/// Shared memory of a warp.
template <quant_type Type, unsigned Tokens>
inline constexpr unsigned ring_bytes = ring_slots<Tokens> * segment_of<Type>::slot_bytes;

/// Two rows, of one or two matrices; scales are null where encodings carry them.
struct row_pair {
  std::byte const* data[paired_rows];
  std::byte const* scales[paired_rows];
  quant_type scale_type[paired_rows];
};

/// Begins copying the aligned 16 bytes around [from, from + bytes); the first byte arrives at
/// to + from % 16.
__device__ __forceinline__ void copy_around(std::byte* to, std::byte const* from, unsigned bytes) {
  auto const lead = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  for (unsigned at = 16 * (threadIdx.x % warp_threads); at < lead + bytes;
       at += 16 * warp_threads) {
    cp_async_16(to + at, from - lead + at);
  }
}
/// Where the byte from `from` arrived.
__device__ __forceinline__ std::byte const* arrived(std::byte const* to, std::byte const* from) {
  return to + reinterpret_cast<std::uintptr_t>(from) % 16;
}

/// Inputs that meet a pair of rows.
struct row_inputs {
  coded_inputs from;
  std::uint8_t const* rows;  ///< of the inputs
  unsigned count;
};

/// A warp's way through its jobs.
///
///   jobs.count()            how many pairs of rows
///   jobs.pair(j)            row_pair
///   jobs.inputs(j)          row_inputs; up to Tokens of them
///   jobs.finish(j, sums)    takes sums[row][input], the same in every lane
template <quant_type Type, unsigned Tokens>
class row_stream {
 public:
  using segment = segment_of<Type>;
  using format = units<Type>;
  static constexpr unsigned slots = ring_slots<Tokens>;

  /// `ring` is this warp's part of the shared memory; rows have `row_units`.
  __device__ row_stream(std::byte* ring,
                        std::uint32_t row_units,
                        typename format::tables const& tables)
      : ring_{ring}, row_units_{row_units}, tables_{tables} {}

  template <class Jobs>
  __device__ __forceinline__ void run(Jobs& jobs) {
    unsigned const count = jobs.count();
    for (unsigned i = 0; i + 1 < slots; ++i) { start_next(jobs, count); }
    wait_for_kernels_before();  // who knows that the weights are there has not waited yet
    let_next_kernel_start();
    for (unsigned job = 0; job < count; ++job) {
      row_pair const rows = jobs.pair(job);
      row_inputs const inputs = jobs.inputs(job);
      float parts[paired_rows][Tokens] = {};
      for (std::uint32_t first = 0; first < row_units_; first += segment::units) {
        cp_async_wait<static_cast<int>(slots) - 2>();
        __syncwarp();  // every lane's copies are here, and every lane is done with the slot before
        start_next(jobs, count);
        add_segment(rows, inputs, first, parts);
        read_ = read_ + 1 == slots ? 0 : read_ + 1;
      }
      float sums[paired_rows][Tokens];
#pragma unroll
      for (unsigned t = 0; t < Tokens; ++t) {
        if (t >= inputs.count) { break; }
#pragma unroll
        for (unsigned r = 0; r < paired_rows; ++r) { sums[r][t] = warp_sum(parts[r][t]); }
      }
      jobs.finish(job, sums);
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::uint32_t units_from(std::uint32_t first) const {
    std::uint32_t const left = row_units_ - first;
    return left < segment::units ? left : segment::units;
  }

  /// Begins to fill the next free slot, if rows are left.
  template <class Jobs>
  __device__ __forceinline__ void start_next(Jobs& jobs, unsigned count) {
    if (next_job_ < count) {
      if (next_first_ == 0) { next_ = jobs.pair(next_job_); }
      constexpr unsigned block_bytes = sizeof(typename segment::block);
      std::byte* const slot = ring_ + fill_ * segment::slot_bytes;
      std::uint32_t const units = units_from(next_first_);
#pragma unroll
      for (unsigned r = 0; r < paired_rows; ++r) {
        copy_around(slot + r * segment::data_bytes,
                    next_.data[r] + next_first_ / segment::block_units * block_bytes,
                    units / segment::block_units * block_bytes);
        if (segment::has_scales && next_.scales[r] != nullptr) {
          unsigned const width = scale_width(next_.scale_type[r]);
          copy_around(slot + paired_rows * segment::data_bytes + r * segment::scale_bytes,
                      next_.scales[r] + width * next_first_,
                      width * units);
        }
      }
      fill_ = fill_ + 1 == slots ? 0 : fill_ + 1;
      next_first_ += segment::units;
      if (next_first_ >= row_units_) {
        next_first_ = 0;
        ++next_job_;
      }
    }
    cp_async_commit();
  }

  __device__ __forceinline__ void add_segment(row_pair const& rows,
                                              row_inputs const& inputs,
                                              std::uint32_t first,
                                              float (&parts)[paired_rows][Tokens]) const {
    constexpr unsigned block_bytes = sizeof(typename segment::block);
    std::byte const* const slot = ring_ + read_ * segment::slot_bytes;
    std::byte const* data[paired_rows];
#pragma unroll
    for (unsigned r = 0; r < paired_rows; ++r) {
      data[r] = arrived(slot + r * segment::data_bytes,
                        rows.data[r] + first / segment::block_units * block_bytes);
    }
    std::uint32_t const count = units_from(first);
    for (std::uint32_t u = threadIdx.x % warp_threads; u < count; u += warp_threads) {
      unit<unit_parts<Type>> w[paired_rows];
#pragma unroll
      for (unsigned r = 0; r < paired_rows; ++r) {
        auto const* const blocks = reinterpret_cast<typename segment::block const*>(data[r]);
        w[r] = format::load(blocks[u / segment::block_units], u % segment::block_units, tables_);
        if (segment::has_scales && rows.scales[r] != nullptr) {
          quant_type const type = rows.scale_type[r];
          std::byte const* const scales =
              arrived(slot + paired_rows * segment::data_bytes + r * segment::scale_bytes,
                      rows.scales[r] + scale_width(type) * first);
          float const whole = type == quant_type::i8 ? 2.0F : 1.0F;  // E8M0 gives halves
          w[r].scale[0] = whole * w[r].scale[0] * scale_value(scales + scale_width(type) * u, type);
        }
      }
#pragma unroll
      for (unsigned t = 0; t < Tokens; ++t) {
        if (t >= inputs.count) { break; }
        coded_input x = inputs.from.load(inputs.rows[t], first + u);
        arrange<Type>(x);
#pragma unroll
        for (unsigned r = 0; r < paired_rows; ++r) {
          parts[r][t] = fmaf(x.scale, unit_dot<Type>(w[r], x), parts[r][t]);
        }
      }
    }
  }

  std::byte* ring_;
  std::uint32_t row_units_;
  typename format::tables const& tables_;
  unsigned read_ = 0;
  unsigned fill_ = 0;
  unsigned next_job_ = 0;
  std::uint32_t next_first_ = 0;
  row_pair next_{};
};

}  // namespace terrace::kernel::cuda::detail
