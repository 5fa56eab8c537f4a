// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/kv_cache.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

/// Attention over a chunk of positions, in the one order that all callers share. For each query:
///
///   score[j] = scale * (q . k[j])          sixteen lanes over dimensions, added by `f32x16::sum`
///   top = max score, w[j] = e^(score[j] - top), sum = w[0] + w[1] + ...   sixteen lanes over
///   positions value[i] = w[0] v[0][i] + w[1] v[1][i] + ...                          positions
///   ascending
///
/// Chunks are merged in ascending order.
namespace terrace::kernel::cpu::detail {

/// Positions that are reduced together; chunk c holds positions [64c, 64c + 64) whatever a call
/// begins with.
inline constexpr std::size_t chunk_positions = 64;
/// Query heads of one token that share a key head and are computed together, at most.
inline constexpr std::size_t most_heads = 4;
/// Keys multiplied together, and vectors of values summed together.
inline constexpr std::size_t tile_width = 4;

/// Softmax over some positions: largest score and sum of exponentials. The weighted values lie
/// elsewhere.
struct softmax_state {
  float largest;
  float sum;
};

/// Rows of one key head in a chunk; the list is filled up to a multiple of `tile_width` with the
/// last row.
struct chunk_rows {
  std::byte const* key[chunk_positions];
  std::byte const* value[chunk_positions];
  std::size_t count;

  chunk_rows(kv_pages const& cache, std::size_t kv_head, std::size_t first, std::size_t n) noexcept
      : count{n} {
    kv_layout const& layout = cache.layout;
    for (std::size_t j = 0; j < n;) {
      std::size_t const slot = (first + j) % layout.page_tokens;
      std::size_t const run = std::min(n - j, layout.page_tokens - slot);
      std::byte const* k = cache.key(first + j, kv_head);
      std::byte const* v = cache.value(first + j, kv_head);
      for (std::size_t const end = j + run; j < end; ++j) {
        key[j] = k;
        value[j] = v;
        k += layout.k_token_stride * layout.element_bytes();
        v += layout.v_token_stride * layout.element_bytes();
      }
    }
    for (std::size_t j = n; j % tile_width != 0; ++j) {
      key[j] = key[n - 1];
      value[j] = value[n - 1];
    }
  }
};

template <bool Half>
[[nodiscard]] inline f32x16 load_cached(std::byte const* row, std::size_t i) noexcept {
  return Half ? f32x16::load_half(row + 2 * i) : f32x16::load(row + 4 * i);
}
/// The first n values from i on; nothing past them is read.
template <bool Half>
[[nodiscard]] inline f32x16 load_cached_first(std::byte const* row,
                                              std::size_t i,
                                              std::size_t n) noexcept {
  std::byte padded[64] = {};
  constexpr std::size_t width = Half ? 2 : 4;
  std::memcpy(padded, row + i * width, n * width);
  return Half ? f32x16::load_half(padded) : f32x16::load(padded);
}

/// score[h][j] for `Heads` queries, d_k apart, and every position of the chunk.
template <bool Half, std::size_t Heads>
void score_chunk(attention_shape const& shape,
                 float const* q,
                 chunk_rows const& rows,
                 float (&score)[most_heads][chunk_positions]) noexcept {
  std::size_t const whole = shape.d_k / 16 * 16;
  for (std::size_t j = 0; j < rows.count; j += tile_width) {
    f32x16 sum[Heads * tile_width];
#pragma GCC unroll 16
    for (f32x16& s : sum) { s = f32x16::zero(); }
    auto const add = [&](std::size_t i, std::size_t n) {
      f32x16 key[tile_width];
#pragma GCC unroll 4
      for (std::size_t p = 0; p < tile_width; ++p) {
        std::byte const* const row = rows.key[j + p];
        key[p] = n == 16 ? load_cached<Half>(row, i) : load_cached_first<Half>(row, i, n);
      }
#pragma GCC unroll 4
      for (std::size_t h = 0; h < Heads; ++h) {
        float const* const query = q + h * shape.d_k + i;
        f32x16 const other = n == 16 ? f32x16::load(query) : f32x16::load_first(query, n);
#pragma GCC unroll 4
        for (std::size_t p = 0; p < tile_width; ++p) {
          sum[h * tile_width + p] = fma(key[p], other, sum[h * tile_width + p]);
        }
      }
    };
    for (std::size_t i = 0; i < whole; i += 16) { add(i, 16); }
    if (whole != shape.d_k) { add(whole, shape.d_k - whole); }
    float dot[most_heads * tile_width];
    sum_each(sum, dot);
    for (std::size_t h = 0; h < Heads; ++h) {
      for (std::size_t p = 0; p < tile_width; ++p) {
        score[h][j + p] = dot[h * tile_width + p] * shape.scale;
      }
    }
  }
}

/// Scores -> weights relative to the largest of them.
inline softmax_state exponentiate(float (&score)[chunk_positions], std::size_t count) noexcept {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  std::fill(score + count, score + chunk_positions, lowest);
  f32x16 largest = f32x16::all(lowest);
  for (std::size_t j = 0; j < chunk_positions; j += 16) {
    largest = max(f32x16::load(score + j), largest);
  }
  float const top = largest.largest();
  f32x16 total = f32x16::zero();
  for (std::size_t j = 0; j < count; j += 16) {
    std::size_t const n = std::min<std::size_t>(16, count - j);
    exponential(f32x16::load(score + j) - f32x16::all(top)).store_first(score + j, n);
    total = total + f32x16::load_first(score + j, n);
  }
  return {top, total.sum()};
}

/// values[h][i] = sum over positions of weight[h][j] * v[j][i] for `Vectors` vectors of dimensions
/// from `first` on, the last of which holds `n`.
template <bool Half, std::size_t Heads, std::size_t Vectors>
void weigh_values(chunk_rows const& rows,
                  float const (&weight)[most_heads][chunk_positions],
                  std::size_t first,
                  std::size_t n,
                  float* values,
                  std::size_t stride) noexcept {
  f32x16 sum[Heads][Vectors];
#pragma GCC unroll 16
  for (std::size_t s = 0; s < Heads * Vectors; ++s) {
    sum[s / Vectors][s % Vectors] = f32x16::zero();
  }
  for (std::size_t j = 0; j < rows.count; ++j) {
    f32x16 v[Vectors];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < Vectors; ++k) {
      std::size_t const at = first + 16 * k;
      v[k] = Vectors > 1 || n == 16 ? load_cached<Half>(rows.value[j], at)
                                    : load_cached_first<Half>(rows.value[j], at, n);
    }
#pragma GCC unroll 4
    for (std::size_t h = 0; h < Heads; ++h) {
      f32x16 const w = f32x16::all(weight[h][j]);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < Vectors; ++k) { sum[h][k] = fma(w, v[k], sum[h][k]); }
    }
  }
  for (std::size_t h = 0; h < Heads; ++h) {
    for (std::size_t k = 0; k < Vectors; ++k) {
      sum[h][k].store_first(values + h * stride + first + 16 * k, Vectors > 1 ? 16 : n);
    }
  }
}

/// `Heads` queries of one token against a chunk: values [Heads, d_v] get the weighted values.
template <bool Half, std::size_t Heads>
[[gnu::noinline]] void attend_chunk(attention_shape const& shape,
                                    float const* q,
                                    chunk_rows const& rows,
                                    softmax_state* states,
                                    float* values) noexcept {
  alignas(64) float score[most_heads][chunk_positions];
  score_chunk<Half, Heads>(shape, q, rows, score);
  for (std::size_t h = 0; h < Heads; ++h) { states[h] = exponentiate(score[h], rows.count); }
  std::size_t i = 0;
  for (; i + 16 * tile_width <= shape.d_v; i += 16 * tile_width) {
    weigh_values<Half, Heads, tile_width>(rows, score, i, 16, values, shape.d_v);
  }
  for (; i < shape.d_v; i += 16) {
    weigh_values<Half, Heads, 1>(
        rows, score, i, std::min<std::size_t>(16, shape.d_v - i), values, shape.d_v);
  }
}

/// The same for a number of heads, at most `most_heads`, and a cache that are known at run time.
inline void attend_chunk(attention_shape const& shape,
                         float const* q,
                         bool half,
                         std::size_t heads,
                         chunk_rows const& rows,
                         softmax_state* states,
                         float* values) noexcept {
  auto const with = [&]<std::size_t Heads>() {
    half ? attend_chunk<true, Heads>(shape, q, rows, states, values)
         : attend_chunk<false, Heads>(shape, q, rows, states, values);
  };
  switch (heads) {
    case 1:
      return with.template operator()<1>();
    case 2:
      return with.template operator()<2>();
    case 3:
      return with.template operator()<3>();
    default:
      return with.template operator()<4>();
  }
}

/// Adds the next chunk to a running softmax and its weighted values [d_v].
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

/// Divides the weighted values by the sum of weights.
inline void finish(softmax_state const& state, float* out, std::size_t d_v) noexcept {
  f32x16 const sum = f32x16::all(state.sum);
  for (std::size_t i = 0; i < d_v; i += 16) {
    std::size_t const n = std::min<std::size_t>(16, d_v - i);
    (f32x16::load_first(out + i, n) / sum).store_first(out + i, n);
  }
}

}  // namespace terrace::kernel::cpu::detail
