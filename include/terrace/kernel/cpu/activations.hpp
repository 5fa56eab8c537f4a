// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/kernel/cpu/detail/int8_panels.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cpu {

/// Inputs of one or more products: borrowed floats and, under `fast`, their 8-bit form, made once
/// and shared.
class activations {
 public:
  /// Takes x [tokens, cols], rows `stride` floats apart. x must stay valid and unchanged while
  /// products read it.
  /// Cost: under `fast` one pass over x; memory is kept for the next call.
  void assign(thread_pool& pool,
              numerics mode,
              float const* x,
              std::size_t tokens,
              std::size_t cols,
              std::size_t stride) {
    if (tokens > 1 && stride < cols) {
      throw contract_error{"activations of " + std::to_string(cols) + " columns cannot lie " +
                           std::to_string(stride) + " floats apart"};
    }
    x_ = x;
    tokens_ = tokens;
    cols_ = cols;
    stride_ = stride;
    mode_ = mode;
    if (!has_codes()) { return; }
    codes_.resize(tokens, cols);
    pool.for_range(tokens, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) { codes_.encode(t, row(t)); }
    });
    std::size_t const panels = detail::panels_for(tokens);
    if (panels == 0) { return; }
    panels_.resize(panels, codes_.blocks);
    pool.for_range(panels, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t p = begin; p < end; ++p) {
        std::size_t const first = p * detail::panel_tokens;
        panels_.pack(p, codes_, tokens - first, [&](std::size_t i) { return first + i; });
      }
    });
  }

  [[nodiscard]] std::size_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::size_t cols() const noexcept { return cols_; }
  [[nodiscard]] numerics mode() const noexcept { return mode_; }
  [[nodiscard]] float const* row(std::size_t token) const noexcept { return x_ + token * stride_; }

  /// Whether the 8-bit form exists: it is made under `fast` when rows are whole blocks of 32.
  [[nodiscard]] bool has_codes() const noexcept {
    return mode_ == numerics::fast && cols_ != 0 && cols_ % detail::block_cols == 0;
  }
  [[nodiscard]] detail::int8_rows const& codes() const noexcept { return codes_; }
  /// The same, packed for products with many tokens: `detail::panels_for(tokens())` panels.
  [[nodiscard]] detail::int8_panels const& panels() const noexcept { return panels_; }

 private:
  float const* x_ = nullptr;
  std::size_t tokens_ = 0;
  std::size_t cols_ = 0;
  std::size_t stride_ = 0;
  numerics mode_ = numerics::exact;
  detail::int8_rows codes_;
  detail::int8_panels panels_;
};

}  // namespace terrace::kernel::cpu
