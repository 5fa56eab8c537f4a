// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace terrace::sequence {

/// One block of sequence state, reserved from a store for as long as this lives. The store must
/// outlive it.
class state_page {
 public:
  state_page(any_store& store, block_id id, std::size_t bytes)
      : store_{&store}, id_{id}, address_{store.reserve_state(id, bytes)} {}
  state_page(state_page const&) = delete;
  state_page& operator=(state_page const&) = delete;
  ~state_page() { store_->release_state(id_); }

  [[nodiscard]] std::byte* address() const noexcept { return address_; }

 private:
  any_store* store_;
  block_id id_;
  std::byte* address_;
};

/// A sequence as it was at one moment: the pages it had then. Pages that were full are shared with
/// the sequence they come from, since rows are never written again; the others are copies. Counts
/// under the store's fastest level; the store must outlive it.
class snapshot {
 public:
  [[nodiscard]] std::size_t tokens() const noexcept { return tokens_; }

 private:
  friend class state_pages;
  std::size_t tokens_ = 0;
  std::vector<page_layout> layouts_;
  std::vector<std::vector<std::shared_ptr<state_page const>>> layers_;
};

/// The state of one sequence, layer by layer, in pages reserved from a store as it grows. Each page
/// is a block of sequence state and counts under the store's fastest level.
class state_pages {
 public:
  /// One layout for each layer.
  state_pages(any_store& store, std::vector<page_layout> layouts)
      : store_{&store},
        layouts_{std::move(layouts)},
        pages_(layouts_.size()),
        addresses_(layouts_.size()) {}

  /// Makes room for `tokens` tokens in every layer; new pages hold zeros. Errors: out_of_capacity;
  /// what was reserved before stays.
  void grow(std::size_t tokens) {
    for (std::size_t layer = 0; layer < pages_.size(); ++layer) {
      while (pages_[layer].size() < layouts_[layer].pages_for(tokens)) {
        add(layer, reserve(layer));
      }
    }
  }
  /// Gives all pages back; the sequence is empty again.
  void clear() noexcept {
    for (auto& layer : pages_) { layer.clear(); }
    for (auto& layer : addresses_) { layer.clear(); }
  }

  /// What the sequence is now, `tokens` tokens long. `copy(from, to, bytes)` copies a page.
  /// Errors: out_of_capacity when there is no room for the copies; nothing changes then.
  template <class Copy>
  [[nodiscard]] snapshot save(std::size_t tokens, Copy&& copy) {
    snapshot kept;
    kept.tokens_ = tokens;
    kept.layouts_ = layouts_;
    kept.layers_.resize(pages_.size());
    for (std::size_t layer = 0; layer < pages_.size(); ++layer) {
      auto const& layout = layouts_[layer];
      for (std::size_t page = 0; page < layout.pages_for(tokens); ++page) {
        auto const& from = pages_[layer][page];
        kept.layers_[layer].push_back(is_full(layout, page, tokens) ? from
                                                                    : twin(layer, *from, copy));
      }
    }
    return kept;
  }
  /// Makes the sequence what it was at `kept`.
  /// Errors: contract_error for a snapshot of another model's sequence; out_of_capacity when there is
  ///         no room for the copies, the sequence is empty then.
  template <class Copy>
  void restore(snapshot const& kept, Copy&& copy) {
    if (kept.layouts_ != layouts_) {
      throw contract_error{"a snapshot of a sequence of another model cannot be restored here"};
    }
    clear();
    for (std::size_t layer = 0; layer < pages_.size(); ++layer) {
      auto const& from = kept.layers_[layer];
      for (std::size_t page = 0; page < from.size(); ++page) {
        add(layer,
            is_full(layouts_[layer], page, kept.tokens_) ? from[page]
                                                         : twin(layer, *from[page], copy));
      }
    }
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layouts_.size(); }
  [[nodiscard]] page_layout const& layout(std::size_t layer) const noexcept {
    return layouts_[layer];
  }
  /// The pages of a layer; valid until the next call that changes them.
  [[nodiscard]] std::span<std::byte* const> layer(std::size_t index) const noexcept {
    return addresses_[index];
  }
  /// Most pages that one layer has for a sequence of `tokens` tokens.
  [[nodiscard]] std::size_t pages_for(std::size_t tokens) const noexcept {
    std::size_t most = 0;
    for (auto const& one : layouts_) { most = std::max(most, one.pages_for(tokens)); }
    return most;
  }

 private:
  using shared_page = std::shared_ptr<state_page const>;

  [[nodiscard]] static bool is_full(page_layout const& layout,
                                    std::size_t page,
                                    std::size_t tokens) noexcept {
    return !layout.is_fixed() && (page + 1) * layout.tokens <= tokens;
  }
  [[nodiscard]] shared_page reserve(std::size_t layer) {
    auto const id = make_block_id(
        layouts_[layer].kind, layer_id{static_cast<std::uint32_t>(layer)}, next_page_++);
    return std::make_shared<state_page const>(*store_, id, layouts_[layer].bytes);
  }
  template <class Copy>
  [[nodiscard]] shared_page twin(std::size_t layer, state_page const& from, Copy&& copy) {
    auto page = reserve(layer);
    copy(from.address(), page->address(), layouts_[layer].bytes);
    return page;
  }
  void add(std::size_t layer, shared_page page) {
    addresses_[layer].push_back(page->address());
    pages_[layer].push_back(std::move(page));
  }

  any_store* store_;
  std::vector<page_layout> layouts_;
  std::vector<std::vector<shared_page>> pages_;
  std::vector<std::vector<std::byte*>> addresses_;  ///< of pages_, as kernels read them
  std::uint32_t next_page_ = 0;                     ///< numbers every page that was ever reserved
};

}  // namespace terrace::sequence
