// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>

#include <cstdint>

// One kernel per group of functions of kernel/cuda/detail/device.cuh; each runs one warp unless it
// says otherwise. All pointers are device memory.
namespace terrace::kernel::cuda::probe {

/// c [16, 8] = a [16, k] b [k, 8], row-major 16-bit values: bfloat16 or float16 with k = 16.
void multiply_bf16(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c);
void multiply_f16(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c);
/// As above with k = 8.
void multiply_f16_k8(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c);
/// As multiply_bf16, the fragments loaded with ldmatrix from shared memory that cp.async filled.
void multiply_through_shared(stream_ref on,
                             std::uint16_t const* a,
                             std::uint16_t const* b,
                             float* c);

/// out [32, 6]: of each lane the xor 5, down 3, up 2, broadcast of lane 7, ballot of odd lanes, xor
/// 4 within groups of 8.
void shuffle(stream_ref on, std::uint32_t* out);
/// out [blocks]: sums of `threads` values of a block, through shared memory and barriers.
void block_sums(stream_ref on, unsigned blocks, unsigned threads, float const* x, float* out);
/// Adds 1 to counter[0], takes the maximum in counter[1] and exchanges what counter[2] holds, from
/// every thread.
void count(stream_ref on, unsigned blocks, unsigned threads, std::uint32_t* counter);
/// Waits until *flag is not zero, then stores it, plus 1, to *answer.
void answer(stream_ref on, std::uint32_t* flag, std::uint32_t* out);
/// out = dp4a, byte_perm, popc, clz and ffs of fixed words.
void bits(stream_ref on, std::int32_t* out);

}  // namespace terrace::kernel::cuda::probe
