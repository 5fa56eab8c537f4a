// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace::kernel::cpu::detail {

/// Elements that share one activation scale; every fast weight type is a run of such blocks.
inline constexpr std::size_t block_cols = 32;
/// Blocks that one vector of partial sums covers: a product keeps four partial sums, one for each
/// block number modulo 4.
inline constexpr std::size_t block_lanes = 4;

/// Vectors in 8-bit form, token by token: x[i] is about scale[i / 32] * code[i], |code| <= 127.
///
/// Shapes: codes [tokens, pitch]; scale, sum [tokens, blocks_pitch]; low_sum, high_sum (of the codes of the first and
///         last 16 elements of a block) [tokens, blocks_pitch]. Pitches are whole groups of four
///         blocks, zero filled.
struct int8_rows {
  std::size_t blocks = 0;  ///< blocks a row that hold elements
  std::size_t blocks_pitch = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> scale;
  std::vector<float> sum;  ///< scale * (sum of the block's codes)
  std::vector<std::int32_t> low_sum;
  std::vector<std::int32_t> high_sum;

  void resize(std::size_t tokens, std::size_t cols) {
    blocks = cols / block_cols;
    blocks_pitch = (blocks + block_lanes - 1) / block_lanes * block_lanes;
    codes.assign(tokens * blocks_pitch * block_cols, 0);
    scale.assign(tokens * blocks_pitch, 0.0F);
    sum.assign(tokens * blocks_pitch, 0.0F);
    low_sum.assign(tokens * blocks_pitch, 0);
    high_sum.assign(tokens * blocks_pitch, 0);
  }
  [[nodiscard]] std::size_t pitch() const noexcept { return blocks_pitch * block_cols; }

  /// Encodes x [blocks * 32] as row `token`. A block with a value that is not finite gets scale
  /// NaN, so that every product with it is NaN; a block below the normal range of float32 is zero.
  void encode(std::size_t token, float const* x) noexcept {
    for (std::size_t b = 0; b < blocks; ++b) {
      encode_block(token * blocks_pitch + b, x + b * block_cols);
    }
  }

 private:
  void encode_block(std::size_t at, float const* x) noexcept {
    float largest = 0;
    bool finite = true;
    for (std::size_t i = 0; i < block_cols; ++i) {
      float const magnitude = std::fabs(x[i]);
      finite &= magnitude <= std::numeric_limits<float>::max();
      largest = magnitude > largest ? magnitude : largest;
    }
    float const unit = largest / 127.0F;
    bool const encodable = finite && unit >= std::numeric_limits<float>::min();
    float const inverse = encodable ? 127.0F / largest : 0.0F;
    std::int8_t* const code = codes.data() + at * block_cols;
    std::int32_t low = 0;
    std::int32_t high = 0;
    for (std::size_t i = 0; i < block_cols; ++i) {
      auto const rounded =
          static_cast<std::int32_t>(encodable ? std::nearbyint(x[i] * inverse) : 0.0F);
      code[i] = static_cast<std::int8_t>(rounded);
      (i < block_cols / 2 ? low : high) += rounded;
    }
    scale[at] = encodable ? unit : finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    sum[at] = scale[at] * static_cast<float>(low + high);
    low_sum[at] = low;
    high_sum[at] = high;
  }
};

}  // namespace terrace::kernel::cpu::detail
