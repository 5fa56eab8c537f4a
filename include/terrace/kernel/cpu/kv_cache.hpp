// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace terrace::kernel::cpu {

namespace detail {

/// Writes n floats as the cache keeps them.
inline void store_row(float const* from, std::size_t n, bool half, std::byte* to) noexcept {
  if (!half) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) { f32x16::load(from + i).store_half(to + 2 * i); }
  if (i < n) {
    std::byte padded[32];
    f32x16::load_first(from + i, n - i).store_half(padded);
    std::memcpy(to + 2 * i, padded, 2 * (n - i));
  }
}

}  // namespace detail

/// Writes keys and values of `shape.tokens` new positions into their pages, rounded to binary16
/// where the cache asks.
///
/// Shapes: k [tokens, kv_heads, d_k]; v [tokens, kv_heads, d_v], or null when values are part of the keys (absorbed MLA).
/// Errors: contract_error when a page is missing.
inline void store_kv(thread_pool& pool,
                     attention_shape const& shape,
                     float const* k,
                     float const* v,
                     kv_pages const& cache) {
  cache.require(shape.first_position + shape.tokens);
  bool const half = cache.layout.half;
  pool.for_range(shape.tokens, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        std::size_t const row = t * shape.kv_heads + h;
        std::size_t const position = shape.first_position + t;
        detail::store_row(k + row * shape.d_k, shape.d_k, half, cache.key(position, h));
        if (v != nullptr) {
          detail::store_row(v + row * shape.d_v, shape.d_v, half, cache.value(position, h));
        }
      }
    }
  });
}

}  // namespace terrace::kernel::cpu
