// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/kv_cache.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

namespace terrace::kernel::cpu {

namespace detail {

/// Positions that are reduced together; chunk c holds positions [64c, 64c + 64) whatever a call
/// begins with.
inline constexpr std::size_t chunk_positions = 64;

/// Softmax of some positions: largest score, sum of exponentials; the weighted values lie
/// elsewhere.
struct softmax_state {
  float largest;
  float sum;
};

[[nodiscard]] inline f32x16 load_cached(std::byte const* row,
                                        std::size_t i,
                                        std::size_t n,
                                        bool half) noexcept {
  if (n >= 16) { return half ? f32x16::load_half(row + 2 * i) : f32x16::load(row + 4 * i); }
  std::byte padded[64] = {};
  std::memcpy(padded, row + i * (half ? 2 : 4), n * (half ? 2 : 4));
  return half ? f32x16::load_half(padded) : f32x16::load(padded);
}

/// One query against positions [first, first + count) of a chunk: out [d_v] gets their weighted
/// values.
[[gnu::noinline]] inline softmax_state attend_chunk(attention_shape const& shape,
                                                    float const* q,
                                                    kv_pages const& cache,
                                                    std::size_t kv_head,
                                                    std::size_t first,
                                                    std::size_t count,
                                                    float* out) noexcept {
  bool const half = cache.layout.half;
  float score[chunk_positions];
  f32x16 largest = f32x16::all(-std::numeric_limits<float>::infinity());
  std::fill(score, score + chunk_positions, -std::numeric_limits<float>::infinity());
  for (std::size_t j = 0; j < count; ++j) {
    std::byte const* const key = cache.key(first + j, kv_head);
    f32x16 sum = f32x16::zero();
    for (std::size_t i = 0; i < shape.d_k; i += 16) {
      std::size_t const n = std::min<std::size_t>(16, shape.d_k - i);
      sum = fma(load_cached(key, i, n, half), f32x16::load_first(q + i, n), sum);
    }
    score[j] = sum.sum() * shape.scale;
  }
  for (std::size_t j = 0; j < chunk_positions; j += 16) {
    largest = max(f32x16::load(score + j), largest);
  }
  float lanes[16];
  largest.store(lanes);
  float const top = *std::max_element(lanes, lanes + 16);
  f32x16 total = f32x16::zero();
  for (std::size_t j = 0; j < count; j += 16) {
    std::size_t const n = std::min<std::size_t>(16, count - j);
    f32x16 const weight = exponential(f32x16::load_first(score + j, n) - f32x16::all(top));
    weight.store_first(score + j, n);
    total = total + f32x16::load_first(score + j, n);
  }
  for (std::size_t i = 0; i < shape.d_v; i += 16) {
    std::size_t const n = std::min<std::size_t>(16, shape.d_v - i);
    f32x16 sum = f32x16::zero();
    for (std::size_t j = 0; j < count; ++j) {
      sum =
          fma(f32x16::all(score[j]), load_cached(cache.value(first + j, kv_head), i, n, half), sum);
    }
    sum.store_first(out + i, n);
  }
  return {top, total.sum()};
}

/// Adds the next chunk to a running softmax and its weighted values.
[[gnu::noinline]] inline void merge_chunk(softmax_state& running,
                                          float* out,
                                          softmax_state next,
                                          float const* values,
                                          std::size_t d_v) noexcept {
  float const largest = running.largest > next.largest ? running.largest : next.largest;
  float const keep = exponential(running.largest - largest);
  float const take = exponential(next.largest - largest);
  running = {largest, multiply_add(running.sum, keep, next.sum * take)};
  for (std::size_t i = 0; i < d_v; i += 16) {
    std::size_t const n = std::min<std::size_t>(16, d_v - i);
    f32x16 const scaled = f32x16::load_first(values + i, n) * f32x16::all(take);
    fma(f32x16::load_first(out + i, n), f32x16::all(keep), scaled).store_first(out + i, n);
  }
}

inline void attend(attention_shape const& shape,
                   float const* q,
                   kv_pages const& cache,
                   std::size_t kv_head,
                   std::size_t positions,
                   float* values,
                   float* out) noexcept {
  softmax_state running =
      attend_chunk(shape, q, cache, kv_head, 0, std::min(positions, chunk_positions), out);
  for (std::size_t first = chunk_positions; first < positions; first += chunk_positions) {
    std::size_t const count = std::min(positions - first, chunk_positions);
    softmax_state const next = attend_chunk(shape, q, cache, kv_head, first, count, values);
    merge_chunk(running, out, next, values, shape.d_v);
  }
  f32x16 const sum = f32x16::all(running.sum);
  for (std::size_t i = 0; i < shape.d_v; i += 16) {
    std::size_t const n = std::min<std::size_t>(16, shape.d_v - i);
    (f32x16::load_first(out + i, n) / sum).store_first(out + i, n);
  }
}

}  // namespace detail

/// Causal attention: out = softmax(scale * q . k) v, token t over positions 0 to first_position +
/// t, which must be in the cache already. Each (token, head) has the same bits whatever else is in
/// the call.
///
/// Shapes: q [tokens, heads, d_k], out [tokens, heads, d_v].
/// Errors: contract_error when heads is no multiple of kv_heads or a page is missing.
inline void attention(thread_pool& pool,
                      attention_shape const& shape,
                      float const* q,
                      kv_pages const& cache,
                      float* out) {
  if (shape.kv_heads == 0 || shape.heads % shape.kv_heads != 0) {
    throw contract_error{std::to_string(shape.heads) + " query heads cannot share " +
                         std::to_string(shape.kv_heads) + " key heads evenly"};
  }
  cache.require(shape.first_position + shape.tokens);
  std::size_t const group = shape.heads / shape.kv_heads;
  pool.run([&](int thread) {
    auto* const values = reinterpret_cast<float*>(pool.scratch(thread, shape.d_v * sizeof(float)));
    auto const t = static_cast<std::size_t>(thread);
    auto const threads = static_cast<std::size_t>(pool.size());
    for (std::size_t i = t; i < shape.tokens * shape.heads; i += threads) {
      std::size_t const positions = shape.first_position + i / shape.heads + 1;
      detail::attend(shape,
                     q + i * shape.d_k,
                     cache,
                     i % shape.heads / group,
                     positions,
                     values,
                     out + i * shape.d_v);
    }
  });
}

}  // namespace terrace::kernel::cpu
