// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/numerics.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda {

/// Most tokens of a batch whose `fast` form is 8-bit codes; larger batches are rounded to bfloat16.
inline constexpr std::size_t most_coded_tokens = 8;
/// Columns that share a scale of the 8-bit form.
inline constexpr std::size_t code_columns = 32;

/// Inputs of products: float32 values, and under `fast` a shorter form beside them. Borrows all of
/// it; every pointer is device memory.
struct activations {
  float const* values = nullptr;        ///< [tokens, cols]
  std::int8_t const* codes = nullptr;   ///< [tokens, pitch]: value is about scale * code
  float const* scales = nullptr;        ///< [tokens, pitch / 32]
  std::uint32_t const* sums = nullptr;  ///< [tokens, pitch / 32]: two signed halves, the codes' sum
                                        ///< over the first 16 columns lower
  std::uint16_t const* halves = nullptr;  ///< [tokens, pitch], bfloat16
  std::size_t tokens = 0;
  std::size_t cols = 0;
  std::size_t pitch = 0;  ///< cols, up to whole groups of 32; what is past cols is zero
  numerics mode = numerics::exact;
};

/// Bytes of device memory that `prepare` fills; 0 under `exact`.
[[nodiscard]] std::size_t prepared_bytes(numerics mode,
                                         std::size_t tokens,
                                         std::size_t cols) noexcept;

/// Makes x [tokens, cols] ready for products: under `exact` it is read as it is, under `fast` up to
/// most_coded_tokens get 8-bit codes and more become bfloat16. Enqueues on `on`; x and memory must
/// stay while products read them.
///
/// A group with a value that is not finite gets scale NaN, so that its products are NaN; a group
/// whose scale would be below the normal range is zero. The codes have the CPU's bits.
///
/// Shapes: memory: prepared_bytes, aligned to 16.
/// Errors: contract_error on the host's stream; cuda_error, device_lost.
[[nodiscard]] activations prepare(stream_ref on,
                                  numerics mode,
                                  float const* x,
                                  std::size_t tokens,
                                  std::size_t cols,
                                  void* memory);

}  // namespace terrace::kernel::cuda
