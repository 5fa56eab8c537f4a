// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/activations.hpp>
#include <terrace/kernel/cpu/detail/multiply_rows.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>
#include <terrace/quant/decode.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::kernel::cpu {

/// y[t * y_stride + r] = sum over c of w[r, c] * x[t, c].
///
/// Under `exact`, or for types without an integer product, weights are decoded to float32; under
/// `fast` the common block types multiply 8-bit activations. The bits of y[t, r] depend on row r of
/// w, on x[t], and on the numerics, on nothing else: not on the number of tokens or threads, on the
/// row's place, or on addresses.
///
/// Shapes: w [rows, cols], x [tokens, cols], y [tokens, rows] with rows y_stride floats apart, y_stride >= w.rows.
/// Errors: contract_error when w and x disagree, or rows are no whole blocks.
/// Cost:   reads w once for up to 16 tokens; splits rows over the threads.
inline void matmul(
    thread_pool& pool, matrix_view const& w, activations const& x, float* y, std::size_t y_stride) {
  detail::check_matrix(w, x.cols());
  pool.run([&](int thread) {
    auto const range = detail::share_of(w.rows, detail::tile_rows, thread, pool.size());
    detail::multiply_rows(
        w, detail::all_tokens(x), {y, y_stride, range.begin, range.end}, {&pool, thread});
  });
}

/// Decodes the given rows of w to out [rows.size(), w.cols]: an embedding lookup.
/// Errors: contract_error when a row is past the last.
inline void decode_rows(matrix_view const& w, std::span<std::uint32_t const> rows, float* out) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    quant::decode_rows(w, rows[i], 1, {out + i * w.cols, w.cols});
  }
}

}  // namespace terrace::kernel::cpu
