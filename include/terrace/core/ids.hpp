// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace terrace {

enum class layer_id : std::uint32_t {};
enum class expert_id : std::uint32_t {};
/// Index of a model file in the catalog's list of files.
enum class file_id : std::uint32_t {};

/// What a block holds. Part of its id, so that policies and reports can tell the kinds apart.
enum class block_kind : std::uint8_t {
  dense = 1,
  expert = 2,
  kv_page = 3,
  mla_page = 4,
  recurrent_state = 5
};

/// Unit of residency. Layout: kind in bits 56-63, layer in bits 32-55, index in bits 0-31.
enum class block_id : std::uint64_t {};

/// Layer number of a block that belongs to no layer (embedding, output head).
inline constexpr layer_id no_layer{0xFF'FFFFU};

[[nodiscard]] constexpr block_id make_block_id(block_kind kind,
                                               layer_id layer,
                                               std::uint32_t index) noexcept {
  return block_id{(static_cast<std::uint64_t>(kind) << 56U) |
                  ((static_cast<std::uint64_t>(layer) & 0xFF'FFFFU) << 32U) | index};
}
[[nodiscard]] constexpr block_id expert_block(layer_id layer, expert_id expert) noexcept {
  return make_block_id(block_kind::expert, layer, static_cast<std::uint32_t>(expert));
}
[[nodiscard]] constexpr block_kind kind_of(block_id id) noexcept {
  return static_cast<block_kind>(static_cast<std::uint64_t>(id) >> 56U);
}
[[nodiscard]] constexpr layer_id layer_of(block_id id) noexcept {
  return layer_id{static_cast<std::uint32_t>((static_cast<std::uint64_t>(id) >> 32U) & 0xFF'FFFFU)};
}
[[nodiscard]] constexpr std::uint32_t index_of(block_id id) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) & 0xFFFF'FFFFU);
}

/// "expert 17 of layer 3", for error sentences and traces.
[[nodiscard]] inline std::string to_string(block_id id) {
  static constexpr char const* names[] = {
      "block", "dense block", "expert", "kv page", "mla page", "state"};
  auto const kind = static_cast<unsigned>(kind_of(id));
  std::string text = std::string{names[kind < 6 ? kind : 0]} + " " + std::to_string(index_of(id));
  if (layer_of(id) != no_layer) {
    text += " of layer " + std::to_string(static_cast<std::uint32_t>(layer_of(id)));
  }
  return text;
}

}  // namespace terrace
