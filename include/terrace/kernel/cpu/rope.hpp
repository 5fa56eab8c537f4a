// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/rope_shape.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace::kernel::cpu {

/// Cosines and sines for the tokens of one step, shared by its layers and heads.
class rope_table {
 public:
  /// Angle of token t and pair i is positions[t] * freqs[i], rounded to float32 as the reference
  /// models do; both factors are multiplied by `magnitude`.
  void assign(std::span<std::uint32_t const> positions,
              std::span<float const> freqs,
              float magnitude) {
    pairs_ = freqs.size();
    cosine_.resize(positions.size() * pairs_);
    sine_.resize(positions.size() * pairs_);
    for (std::size_t t = 0; t < positions.size(); ++t) {
      for (std::size_t i = 0; i < pairs_; ++i) {
        auto const angle = static_cast<double>(static_cast<float>(positions[t]) * freqs[i]);
        cosine_[t * pairs_ + i] = static_cast<float>(std::cos(angle)) * magnitude;
        sine_[t * pairs_ + i] = static_cast<float>(std::sin(angle)) * magnitude;
      }
    }
  }
  [[nodiscard]] std::size_t tokens() const noexcept {
    return pairs_ == 0 ? 0 : cosine_.size() / pairs_;
  }
  [[nodiscard]] std::size_t pairs() const noexcept { return pairs_; }
  [[nodiscard]] float const* cosine(std::size_t token) const noexcept {
    return cosine_.data() + token * pairs_;
  }
  [[nodiscard]] float const* sine(std::size_t token) const noexcept {
    return sine_.data() + token * pairs_;
  }

 private:
  std::size_t pairs_ = 0;
  std::vector<float> cosine_;
  std::vector<float> sine_;
};

/// Rotates pairs of dimensions of x in place by the angles of `table`, whose row t belongs to token
/// t.
/// Errors: contract_error when shape and table disagree.
inline void rope(thread_pool& pool, float* x, rope_shape const& shape, rope_table const& table) {
  if (table.pairs() * 2 != shape.n_rot || table.tokens() < shape.tokens ||
      shape.first_dim + shape.n_rot > shape.head_stride) {
    throw contract_error{
        "a rotation of dimensions " + std::to_string(shape.first_dim) + " to " +
        std::to_string(shape.first_dim + shape.n_rot) + " of " + std::to_string(shape.head_stride) +
        " for " + std::to_string(shape.tokens) + " tokens cannot use a table of " +
        std::to_string(table.pairs()) + " pairs for " + std::to_string(table.tokens()) + " tokens"};
  }
  std::size_t const first_step = shape.pairing == rope_pairing::interleaved ? 2 : 1;
  std::size_t const partner = shape.pairing == rope_pairing::interleaved ? 1 : shape.n_rot / 2;
  pool.for_range(shape.tokens, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      float const* const cosine = table.cosine(t);
      float const* const sine = table.sine(t);
      for (std::size_t h = 0; h < shape.heads; ++h) {
        float* const first = x + (t * shape.heads + h) * shape.head_stride + shape.first_dim;
        for (std::size_t i = 0; i < table.pairs(); ++i) {
          float* const at = first + i * first_step;
          float const a = at[0];
          float const b = at[partner];
          at[0] = detail::multiply_add(a, cosine[i], -(b * sine[i]));
          at[partner] = detail::multiply_add(a, sine[i], b * cosine[i]);
        }
      }
    }
  });
}

}  // namespace terrace::kernel::cpu
