// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/kernel/cpu/activations.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/detail/multiply_rows.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>
#include <terrace/quant/decode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace::kernel::cpu {

/// One head's product: out [tokens, rows] = factor in, or with `transposed` out [tokens, cols] =
/// factor^T in. Rows of `in` and `out` lie `in_stride` and `out_stride` floats apart.
struct head_task {
  matrix_view factor;
  bool transposed = false;
  float const* in = nullptr;
  std::size_t in_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
};

namespace detail {

/// out[t] = sum over rows r, ascending, of in[t][r] * factor[r].
inline void multiply_transposed(head_task const& task, std::size_t tokens) {
  std::size_t const cols = task.factor.cols;
  std::vector<float> row(cols);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::fill_n(task.out + t * task.out_stride, cols, 0.0F);
  }
  for (std::uint64_t r = 0; r < task.factor.rows; ++r) {
    quant::decode_row(task.factor, r, row);
    for (std::size_t t = 0; t < tokens; ++t) {
      float* const out = task.out + t * task.out_stride;
      f32x16 const weight = f32x16::all(task.in[t * task.in_stride + r]);
      for (std::size_t c = 0; c < cols; c += 16) {
        std::size_t const n = std::min<std::size_t>(16, cols - c);
        fma(weight, f32x16::load_first(row.data() + c, n), f32x16::load_first(out + c, n))
            .store_first(out + c, n);
      }
    }
  }
}

}  // namespace detail

/// The small products of latent attention, one head per thread at a time, with float32 inputs in
/// both numerics. The bits of a head's result depend on its factor and inputs only.
/// Errors: contract_error when the columns of a factor are no whole blocks.
inline void head_products(thread_pool& pool, std::span<head_task const> heads, std::size_t tokens) {
  for (auto const& task : heads) { detail::check_matrix(task.factor, task.factor.cols); }
  pool.run([&](int thread) {
    for (std::size_t h = static_cast<std::size_t>(thread); h < heads.size();
         h += static_cast<std::size_t>(pool.size())) {
      auto const& task = heads[h];
      if (task.transposed) {
        detail::multiply_transposed(task, tokens);
        continue;
      }
      activations in;
      in.assign(pool, numerics::exact, task.in, tokens, task.factor.cols, task.in_stride);
      detail::multiply_rows(task.factor,
                            {&in, nullptr, tokens, nullptr},
                            {task.out, task.out_stride, 0, task.factor.rows},
                            {&pool, thread});
    }
  });
}

}  // namespace terrace::kernel::cpu
