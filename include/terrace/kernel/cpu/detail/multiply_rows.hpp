// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/activations.hpp>
#include <terrace/kernel/cpu/detail/float_tile.hpp>
#include <terrace/kernel/cpu/detail/int8_tile.hpp>
#include <terrace/kernel/cpu/detail/nibble_rows.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>
#include <terrace/quant/decode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace terrace::kernel::cpu::detail {

/// Some tokens of an `activations`: all of them, or those of a list.
struct token_set {
  activations const* x;
  std::uint32_t const* list;  ///< null: tokens 0, 1, ...
  std::size_t count;
  int8_panels const* panels;  ///< the tokens packed into `panels_for(count)` panels

  [[nodiscard]] std::size_t operator[](std::size_t i) const noexcept {
    return list == nullptr ? i : list[i];
  }
};
[[nodiscard]] inline token_set all_tokens(activations const& x) noexcept {
  return {&x, nullptr, x.tokens(), &x.panels()};
}

/// A rectangle of results: value of (token, row) at y[token * stride + row].
struct result_rows {
  float* y;
  std::size_t stride;
  std::size_t begin;  ///< first row
  std::size_t end;
};

/// Contiguous share of [0, n) for one of `threads`, cut at multiples of `grain`.
struct range {
  std::size_t begin;
  std::size_t end;
};
[[nodiscard]] inline range share_of(std::size_t n,
                                    std::size_t grain,
                                    int thread,
                                    int threads) noexcept {
  std::size_t const grains = (n + grain - 1) / grain;
  auto const t = static_cast<std::size_t>(thread);
  auto const all = static_cast<std::size_t>(threads);
  return {std::min(n, grains * t / all * grain), std::min(n, grains * (t + 1) / all * grain)};
}

/// Memory of one thread.
struct workspace {
  thread_pool* pool;
  int thread;
  [[nodiscard]] std::byte* reserve(std::size_t bytes) const { return pool->scratch(thread, bytes); }
};

inline constexpr std::size_t tile_tokens = 6;

template <class Load>
void multiply_tile_by_count(std::byte const* const (&w)[tile_rows],
                            float const* const* x,
                            std::size_t tokens,
                            std::size_t cols,
                            std::size_t rows,
                            float* y,
                            std::size_t y_stride) noexcept {
  switch (tokens) {
    case 1:
      return multiply_tile<Load, 1>(w, x, cols, rows, y, y_stride);
    case 2:
      return multiply_tile<Load, 2>(w, x, cols, rows, y, y_stride);
    case 3:
      return multiply_tile<Load, 3>(w, x, cols, rows, y, y_stride);
    case 4:
      return multiply_tile<Load, 4>(w, x, cols, rows, y, y_stride);
    case 5:
      return multiply_tile<Load, 5>(w, x, cols, rows, y, y_stride);
    default:
      return multiply_tile<Load, tile_tokens>(w, x, cols, rows, y, y_stride);
  }
}

/// Multiplies rows that lie in memory as `Load` reads them, `pitch` bytes apart from `first` on;
/// results start at row `out.begin`.
template <class Load>
void multiply_plain_rows(std::byte const* first,
                         std::size_t pitch,
                         token_set tokens,
                         result_rows out) noexcept {
  std::size_t const cols = tokens.x->cols();
  for (std::size_t t = 0; t < tokens.count; t += tile_tokens) {
    std::size_t const width = std::min(tile_tokens, tokens.count - t);
    float const* x[tile_tokens] = {};
    for (std::size_t i = 0; i < width; ++i) { x[i] = tokens.x->row(tokens[t + i]); }
    for (std::size_t row = out.begin; row < out.end; row += tile_rows) {
      std::byte const* w[tile_rows];
      for (std::size_t r = 0; r < tile_rows; ++r) {
        w[r] = first + (std::min(row + r, out.end - 1) - out.begin) * pitch;
      }
      multiply_tile_by_count<Load>(
          w, x, width, cols, out.end - row, out.y + t * out.stride + row, out.stride);
    }
  }
}

/// Decodes `rows` rows from `row` on to out [rows, w.cols].
inline void decode_some_rows(matrix_view const& w, std::size_t row, std::size_t rows, float* out) {
  std::size_t const n = rows * w.cols;
  bool const plain = w.grid == scale_grid::none && w.multiplier == 1.0F;
  std::byte const* const from = w.data + row * row_bytes(w.type, w.cols);
  auto const convert = [&]<class Load>() {
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) { Load::load(from + i * Load::bytes).store(out + i); }
    if (i < n) { quant::decode_blocks(w.type, from + i * Load::bytes, n - i, out + i); }
  };
  if (plain && w.type == quant_type::f16) { return convert.template operator()<load_f16>(); }
  if (plain && w.type == quant_type::bf16) { return convert.template operator()<load_bf16>(); }
  quant::decode_rows(w, row, rows, {out, n});
}

/// Decodes rows to float32, some at a time, and multiplies those.
inline void multiply_decoded_rows(matrix_view const& w,
                                  token_set tokens,
                                  result_rows out,
                                  workspace memory) {
  std::size_t const rows_at_once = tokens.count > tile_tokens ? 32 : tile_rows;
  auto* const decoded =
      reinterpret_cast<float*>(memory.reserve(rows_at_once * w.cols * sizeof(float)));
  for (std::size_t row = out.begin; row < out.end; row += rows_at_once) {
    std::size_t const rows = std::min(rows_at_once, out.end - row);
    decode_some_rows(w, row, rows, decoded);
    multiply_plain_rows<load_f32>(reinterpret_cast<std::byte const*>(decoded),
                                  w.cols * sizeof(float),
                                  tokens,
                                  {out.y, out.stride, row, row + rows});
  }
}

inline void multiply_float_rows(matrix_view const& w,
                                token_set tokens,
                                result_rows out,
                                workspace memory) {
  bool const plain = w.grid == scale_grid::none && w.multiplier == 1.0F;
  std::size_t const pitch = row_bytes(w.type, w.cols);
  std::byte const* const first = w.data + out.begin * pitch;
  if (plain && w.type == quant_type::f32) {
    return multiply_plain_rows<load_f32>(first, pitch, tokens, out);
  }
  if (plain && tokens.count <= tile_tokens) {
    if (w.type == quant_type::f16) {
      return multiply_plain_rows<load_f16>(first, pitch, tokens, out);
    }
    if (w.type == quant_type::bf16) {
      return multiply_plain_rows<load_bf16>(first, pitch, tokens, out);
    }
  }
  multiply_decoded_rows(w, tokens, out, memory);
}

/// Most vectors that one pass over the weights serves one by one.
inline constexpr std::size_t pass_tokens = 16;

/// Adds the four partial sums of each row up, in the order that all tilings share.
inline void store_sums(float const* sums,
                       std::size_t row,
                       std::size_t token,
                       result_rows out) noexcept {
  std::size_t const rows = std::min(tile_rows, out.end - row);
  for (std::size_t r = 0; r < rows; ++r) {
    float const* const s = sums + r;
    out.y[token * out.stride + row + r] =
        ((s[0] + s[tile_rows]) + s[2 * tile_rows]) + s[3 * tile_rows];
  }
}

/// Tokens [first, last) of the set, one by one: pieces of four rows are unpacked to the first
/// cache.
template <class Unpacker>
void multiply_int8_rows(matrix_view const& w,
                        token_set tokens,
                        std::size_t first,
                        std::size_t last,
                        result_rows out) noexcept {
  // What lies past the last block is read with the group of four it belongs to, and then dropped.
  alignas(64) std::uint8_t codes[tile_rows * piece_blocks * block_cols] = {};
  alignas(64) float factors[3][tile_rows * piece_blocks] = {};
  unpacked_rows const piece{piece_blocks, codes, factors[0], factors[1], factors[2]};
  auto const& x = tokens.x->codes();
  for (std::size_t t = first; t < last; t += pass_tokens) {
    std::size_t const width = std::min(pass_tokens, last - t);
    for (std::size_t row = out.begin; row < out.end; row += tile_rows) {
      alignas(64) float sums[pass_tokens][block_lanes * tile_rows];
      std::memset(sums, 0, width * sizeof sums[0]);
      for (std::size_t b = 0; b < x.blocks; b += piece_blocks) {
        std::size_t const count = std::min(piece_blocks, x.blocks - b);
        unpacked_rows const unpacked = unpack_rows<Unpacker>(w, row, b, count, piece);
        std::size_t i = 0;
        auto const multiply = [&]<std::size_t... Next>(std::index_sequence<Next...>) {
          for (; i + sizeof...(Next) <= width; i += sizeof...(Next)) {
            multiply_add_rows<Unpacker>(
                unpacked, {row_of(x, tokens[t + i + Next], b)...}, count, {sums[i + Next]...});
          }
        };
#if defined(TERRACE_KERNEL_VNNI)
        multiply(std::make_index_sequence<4>{});
        multiply(std::make_index_sequence<2>{});
#endif
        multiply(std::make_index_sequence<1>{});
      }
      for (std::size_t i = 0; i < width; ++i) { store_sums(sums[i], row, t + i, out); }
    }
  }
}

#if defined(TERRACE_KERNEL_VNNI)
#if defined(__AVX512VBMI__)
/// Most vectors that rows of four-bit codes serve straight from memory, some at a time; more of
/// them repay unpacking.
inline constexpr std::size_t nibble_tokens = 15;

/// Four rows from `row` on, for types that `nibble_type` knows; rows are whole groups of four
/// blocks.
template <class Unpacker, std::size_t Tokens>
void multiply_nibble_tile(matrix_view const& w,
                          token_set tokens,
                          std::size_t first,
                          std::size_t row,
                          result_rows out) noexcept {
  auto const& codes = tokens.x->codes();
  std::size_t const pitch = row_bytes(w.type, w.cols);
  std::size_t const scale_pitch = codes.blocks * traits_of(w.scale_type).block_bytes;
  int8_row x[Tokens];
  for (std::size_t i = 0; i < Tokens; ++i) { x[i] = row_of(codes, tokens[first + i], 0); }
  nibble_blocks rows[tile_rows];
  for (std::size_t r = 0; r < tile_rows; ++r) {
    std::size_t const at = std::min<std::size_t>(row + r, w.rows - 1);
    rows[r] = {w.data + at * pitch, Unpacker::outer_scales ? w.scales + at * scale_pitch : nullptr};
  }
  alignas(64) float sums[Tokens][block_lanes * tile_rows];
  multiply_nibbles<Unpacker>(rows, pitch, w.scale_type, codes.blocks, x, sums);
  for (std::size_t i = 0; i < Tokens; ++i) { store_sums(sums[i], row, first + i, out); }
}

template <class Unpacker>
void multiply_nibble_rows(matrix_view const& w, token_set tokens, result_rows out) noexcept {
  for (std::size_t row = out.begin; row < out.end; row += tile_rows) {
    std::size_t t = 0;
    auto const multiply = [&]<std::size_t Tokens>() {
      for (; t + Tokens <= tokens.count; t += Tokens) {
        multiply_nibble_tile<Unpacker, Tokens>(w, tokens, t, row, out);
      }
    };
    multiply.template operator()<4>();
    multiply.template operator()<3>();
    multiply.template operator()<2>();
    multiply.template operator()<1>();
  }
}
#endif

/// Tokens in panels: a block of rows is unpacked to the second cache, then multiplied with all
/// panels.
template <class Unpacker>
void multiply_int8_panels(matrix_view const& w,
                          token_set tokens,
                          result_rows out,
                          workspace memory) {
  constexpr std::size_t cache_bytes = 384 * 1024;
  std::size_t const blocks = w.cols / block_cols;
  std::size_t const tile_factors = tile_rows * blocks;
  std::size_t const tile_bytes = tile_factors * (block_cols + 3 * sizeof(float));
  std::size_t const tiles = std::clamp<std::size_t>(cache_bytes / tile_bytes, 1, 32);
  std::byte* const buffer = memory.reserve(tiles * tile_bytes);
  auto const tile_at = [&](std::size_t i) {
    std::byte* const at = buffer + i * tile_bytes;
    auto* const factors = reinterpret_cast<float*>(at + tile_factors * block_cols);
    return unpacked_rows{blocks,
                         reinterpret_cast<std::uint8_t*>(at),
                         factors,
                         factors + tile_factors,
                         factors + 2 * tile_factors};
  };
  std::size_t const panels = panels_for(tokens.count);
  for (std::size_t begin = out.begin; begin < out.end; begin += tiles * tile_rows) {
    std::size_t const end = std::min(out.end, begin + tiles * tile_rows);
    for (std::size_t row = begin; row < end; row += tile_rows) {
      static_cast<void>(
          unpack_rows<Unpacker>(w, row, 0, blocks, tile_at((row - begin) / tile_rows)));
    }
    for (std::size_t p = 0; p < panels; p += 2) {
      std::size_t const first = p * panel_tokens;
      for (std::size_t row = begin; row < end; row += tile_rows) {
        float* const y = out.y + first * out.stride + row;
        auto const multiply =
            p + 1 < panels ? multiply_panels<Unpacker, 2> : multiply_panels<Unpacker, 1>;
        multiply(tile_at((row - begin) / tile_rows),
                 *tokens.panels,
                 p,
                 tokens.count - first,
                 out.end - row,
                 y,
                 out.stride);
      }
    }
  }
}
#endif

template <class Unpacker>
void multiply_int8(matrix_view const& w,
                   token_set tokens,
                   result_rows out,
                   [[maybe_unused]] workspace memory) {
#if defined(TERRACE_KERNEL_VNNI) && defined(__AVX512VBMI__)
  if constexpr (nibble_type<Unpacker>::known) {
    if (tokens.count <= nibble_tokens && tokens.x->codes().blocks % block_lanes == 0) {
      return multiply_nibble_rows<Unpacker>(w, tokens, out);
    }
  }
#endif
  std::size_t const packed = std::min(tokens.count, panels_for(tokens.count) * panel_tokens);
#if defined(TERRACE_KERNEL_VNNI)
  if (packed != 0) { multiply_int8_panels<Unpacker>(w, tokens, out, memory); }
#endif
  if (packed != tokens.count) {
    multiply_int8_rows<Unpacker>(w, tokens, packed, tokens.count, out);
  }
}

/// Rows [out.begin, out.end) of `w` times the tokens of a set.
inline void multiply_rows(matrix_view const& w,
                          token_set tokens,
                          result_rows out,
                          workspace memory) {
  if (out.begin >= out.end || tokens.count == 0) { return; }
  auto const in_float = [&] { multiply_float_rows(w, tokens, out, memory); };
  if (!tokens.x->has_codes()) { return in_float(); }
  with_unpacker(
      w, [&]<class Unpacker>() { multiply_int8<Unpacker>(w, tokens, out, memory); }, in_float);
}

/// Throws contract_error unless `w` reads vectors of `cols` values in whole blocks.
inline void check_matrix(matrix_view const& w, std::size_t cols) {
  std::string const shape = "a matrix [" + std::to_string(w.rows) + ", " + std::to_string(w.cols) +
                            "] of " + std::string{name_of(w.type)};
  if (w.cols != cols) {
    throw contract_error{shape + " cannot multiply vectors of " + std::to_string(cols) + " values"};
  }
  if (w.cols % traits_of(w.type).block_elements != 0) {
    throw contract_error{shape + " has rows that are not whole blocks of " +
                         std::to_string(traits_of(w.type).block_elements) + " elements"};
  }
  if (w.grid != scale_grid::none && w.scales == nullptr) {
    throw contract_error{shape + " has a scale grid but no scales"};
  }
}

}  // namespace terrace::kernel::cpu::detail
