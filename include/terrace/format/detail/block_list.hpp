// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/detail/text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::format::detail {

/// Extents from this size on may be read straight into the block with direct I/O.
inline constexpr std::uint64_t direct_read_bytes = 64 * kib;
inline constexpr std::uint64_t direct_read_alignment = 4096;
inline constexpr std::uint64_t small_extent_alignment = 64;

/// Where the pieces of one block lie in its memory.
struct block_memory {
  std::vector<block_extent> extents;         ///< by ascending `to_offset`
  std::vector<std::uint64_t> piece_offsets;  ///< one per piece, in the order given
  std::uint64_t bytes = 0;
};

/// Arranges `pieces` (disjoint runs of files) in one block. Pieces that touch in a file become one
/// extent.
///
/// A large extent starts at the smallest offset that is congruent to its file offset modulo 4096:
/// in a slot aligned to 4096 bytes, direct I/O then lands whole pages where they belong and only
/// the edges are bounced. A small one is not worth a direct read and starts on a cache line.
/// Element data may therefore start at any byte: kernels load unaligned.
[[nodiscard]] inline block_memory arrange(std::span<extent const> pieces) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair{pieces[a].file, pieces[a].offset} <
           std::pair{pieces[b].file, pieces[b].offset};
  });

  block_memory memory;
  std::vector<std::size_t> run_of(pieces.size());
  for (std::size_t const piece : order) {
    extent const& next = pieces[piece];
    if (!memory.extents.empty()) {
      extent& last = memory.extents.back().from;
      if (last.file == next.file && last.offset + last.bytes == next.offset) {
        last.bytes += next.bytes;
        run_of[piece] = memory.extents.size() - 1;
        continue;
      }
    }
    run_of[piece] = memory.extents.size();
    memory.extents.push_back({.from = next});
  }
  for (block_extent& run : memory.extents) {
    std::uint64_t const end = memory.bytes;
    run.to_offset = run.from.bytes >= direct_read_bytes
                        ? end + (run.from.offset - end) % direct_read_alignment
                        : round_up(end, small_extent_alignment);
    memory.bytes = run.to_offset + run.from.bytes;
  }
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    block_extent const& run = memory.extents[run_of[piece]];
    memory.piece_offsets.push_back(run.to_offset + (pieces[piece].offset - run.from.offset));
  }
  memory.bytes = round_up(memory.bytes, small_extent_alignment);
  return memory;
}

/// A matrix and where its bytes are in the files; the offsets of `layout` are filled in once its
/// block is arranged.
struct stored_matrix {
  std::string name;  ///< in GGUF spelling
  matrix_layout layout{};
  extent data{};
  std::optional<extent> scales{};
};

/// The matrices of one expert.
struct stored_expert {
  stored_matrix gate, up, down;
};

/// Layer number of "blk.N.rest"; `no_layer` for other names.
[[nodiscard]] inline layer_id layer_of_name(std::string_view name) noexcept {
  constexpr std::uint32_t most = 1U << 20U;
  if (!name.starts_with("blk.")) { return no_layer; }
  name.remove_prefix(4);
  auto const dot = name.find('.');
  if (dot == std::string_view::npos) { return no_layer; }
  auto const layer = parse_index(name.substr(0, dot), most);
  return layer ? layer_id{*layer} : no_layer;
}

/// The blocks of a model as they are found.
class block_list {
 public:
  struct place {
    block_id block{};
    matrix_layout layout;
    std::size_t matrix = 0;
  };

  /// Most routed experts of all layers together; the largest published model has 82,432.
  static constexpr std::size_t most_experts = 1U << 20U;

  void add_dense(std::string const& source, stored_matrix matrix) {
    layer_id const layer = layer_of_name(matrix.name);
    block_info block;
    block.id = make_block_id(block_kind::dense, layer, dense_count_[layer]++);
    if (places_.contains(matrix.name)) {
      throw format_error{source + ": two tensors stand for " + in_quotes(matrix.name) +
                         "; the files mix two versions of one model, get them again"};
    }
    std::string const name = matrix.name;
    fill(block, std::span{&matrix, 1});
    places_.emplace(name, place{block.id, block.matrices.front(), 0});
    add(std::move(block));
  }

  /// Experts of a layer come in order, from 0. `source` names the file in an error sentence.
  void add_expert(std::string const& source, layer_id layer, stored_expert expert) {
    if (expert_total_ == most_experts) {
      throw format_error{source + ": more than " + std::to_string(most_experts) +
                         " experts; the file is damaged or hostile"};
    }
    ++expert_total_;
    block_info block;
    block.id = expert_block(layer, expert_id{expert_count_[layer]++});
    std::array<stored_matrix, 3> matrices{
        std::move(expert.gate), std::move(expert.up), std::move(expert.down)};
    fill(block, matrices);
    add(std::move(block));
  }

  [[nodiscard]] std::span<block_info const> blocks() const noexcept { return blocks_; }
  [[nodiscard]] block_info const* find(block_id id) const noexcept {
    auto const* index = index_.find(id);
    return index == nullptr ? nullptr : &blocks_[*index];
  }
  [[nodiscard]] place const* find(std::string_view name) const {
    auto const found = places_.find(name);
    return found == places_.end() ? nullptr : &found->second;
  }
  /// Layers that have routed experts, ascending, and how many.
  [[nodiscard]] std::map<layer_id, std::uint32_t> const& experts_by_layer() const noexcept {
    return expert_count_;
  }

 private:
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const noexcept {
      return std::hash<std::string_view>{}(name);
    }
  };

  static void fill(block_info& block, std::span<stored_matrix> matrices) {
    std::vector<extent> pieces;
    for (stored_matrix const& matrix : matrices) {
      pieces.push_back(matrix.data);
      if (matrix.scales) { pieces.push_back(*matrix.scales); }
    }
    block_memory memory = arrange(pieces);
    block.bytes = memory.bytes;
    block.extents = std::move(memory.extents);
    std::size_t piece = 0;
    for (stored_matrix& matrix : matrices) {
      matrix.layout.data_offset = memory.piece_offsets[piece++];
      if (matrix.scales) { matrix.layout.scale_offset = memory.piece_offsets[piece++]; }
      block.matrices.push_back(matrix.layout);
      block.names.push_back(std::move(matrix.name));
    }
  }
  void add(block_info block) {
    index_.assign(block.id, blocks_.size());
    blocks_.push_back(std::move(block));
  }

  std::vector<block_info> blocks_;
  block_map<std::size_t> index_;
  std::unordered_map<std::string, place, name_hash, std::equal_to<>> places_;
  std::map<layer_id, std::uint32_t> dense_count_;
  std::map<layer_id, std::uint32_t> expert_count_;
  std::size_t expert_total_ = 0;
};

}  // namespace terrace::format::detail
