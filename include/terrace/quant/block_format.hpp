// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/quant_type.hpp>
#include <terrace/quant/half.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace terrace::quant {

/// Little-endian fields of a block. Made of bytes, so a block has alignment 1, no padding, and one
/// layout everywhere.
struct le_u16 {
  std::uint8_t byte[2];
  [[nodiscard]] constexpr std::uint16_t value() const noexcept {
    return static_cast<std::uint16_t>(byte[0] | (byte[1] << 8U));
  }
  [[nodiscard]] static constexpr le_u16 of(std::uint16_t value) noexcept {
    return {{static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8U)}};
  }
};
struct le_u32 {
  std::uint8_t byte[4];
  [[nodiscard]] constexpr std::uint32_t value() const noexcept {
    return byte[0] | (std::uint32_t{byte[1]} << 8U) | (std::uint32_t{byte[2]} << 16U) |
           (std::uint32_t{byte[3]} << 24U);
  }
};
struct le_f16 {
  le_u16 bits;
  [[nodiscard]] constexpr float value() const noexcept { return f16_to_f32(bits.value()); }
  [[nodiscard]] static constexpr le_f16 of(float value) noexcept {
    return {le_u16::of(f32_to_f16(value))};
  }
};

/// One encoding: the struct is the block as it lies in the file, `decode` writes its `elements`
/// float32 values.
///
/// Every product that meets an addition in a `decode` is exact in float32 (at most 24 significant
/// bits), so contracting it into a fused multiply-add changes nothing: the values are the same bits
/// under any optimisation flags that keep IEEE arithmetic (so not -ffast-math, which may flush
/// subnormals).
template <class F>
concept block_format =
    std::is_trivially_copyable_v<F> && alignof(F) == 1 &&
    sizeof(F) == traits_of(F::type).block_bytes &&
    F::elements == traits_of(F::type).block_elements && requires(F const& block, float* y) {
      { block.decode(y) } noexcept -> std::same_as<void>;
    };

/// A block format that can be written: `encode` takes `elements` finite values of magnitude up to
/// `max_magnitude`.
template <class F>
concept encodable_format = block_format<F> && requires(float const* x) {
  { F::max_magnitude } -> std::convertible_to<float>;
  { F::encode(x) } noexcept -> std::same_as<F>;
};

/// Decodes `blocks` consecutive blocks to `y` [blocks * F::elements].
template <block_format F>
void decode_run(std::byte const* data, std::uint64_t blocks, float* y) noexcept {
  auto const* const block = reinterpret_cast<F const*>(data);
  for (std::uint64_t i = 0; i < blocks; ++i) { block[i].decode(y + i * F::elements); }
}

}  // namespace terrace::quant
