// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/format/catalog.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::model {

/// Dense tensors that one step of a forward pass reads together, resolved and shape-checked once.
///
/// While a `scope` lives the tensors are leased. A group that was `hold`-ed keeps one lease for
/// good, and its scopes cost nothing.
class weight_group {
 public:
  weight_group() = default;
  explicit weight_group(format::catalog const& catalog) : catalog_{&catalog} {}

  /// Adds a matrix and returns its number in this group.
  /// Errors: format_error naming the tensor when it is missing or its shape is not [rows, cols].
  std::size_t add(std::string_view name, std::int64_t rows, std::int64_t cols) {
    auto const& place = catalog_->get(name);
    auto const& layout = place.layout;
    if (layout.rows != static_cast<std::uint64_t>(rows) ||
        layout.cols != static_cast<std::uint64_t>(cols)) {
      throw format_error{catalog_->files().front().string() + ": tensor `" + std::string{name} +
                         "` has " + std::to_string(layout.cols) + " columns and " +
                         std::to_string(layout.rows) + " rows where the model's sizes ask for " +
                         std::to_string(cols) + " and " + std::to_string(rows) +
                         "; the file is damaged or of another model"};
    }
    return take(place.block, layout);
  }
  /// Adds a vector, which files may also keep as a matrix of one column.
  /// Errors: format_error naming the tensor when it is missing or has another number of values.
  std::size_t add_vector(std::string_view name, std::int64_t values) {
    auto const& place = catalog_->get(name);
    auto layout = place.layout;
    if (layout.cols == 1 && traits_of(layout.type).block_elements == 1) {
      std::swap(layout.rows, layout.cols);
    }
    if (layout.rows != 1 || layout.cols != static_cast<std::uint64_t>(values)) {
      throw format_error{catalog_->files().front().string() + ": tensor `" + std::string{name} +
                         "` has " + std::to_string(layout.rows * layout.cols) +
                         " values where the model's sizes ask for " + std::to_string(values) +
                         "; the file is damaged or of another model"};
    }
    return take(place.block, layout);
  }
  [[nodiscard]] bool has(std::string_view name) const { return catalog_->find(name) != nullptr; }

  [[nodiscard]] std::span<block_id const> ids() const noexcept { return ids_; }

  /// Leases the group for work on `on` until the weight_group is destroyed.
  void hold(any_store& store, stream_ref on) {
    held_ = store.acquire(on, ids_);
    held_.wait_all();
    is_held_ = true;
  }
  [[nodiscard]] bool held() const noexcept { return is_held_; }

  /// The leased group. Borrows the weight_group.
  class scope {
   public:
    scope(weight_group const& group, any_store& store, stream_ref on) : group_{&group} {
      if (group.is_held_) { return; }
      own_ = store.acquire(on, group.ids_);
      own_.wait_all();
    }
    [[nodiscard]] matrix_view operator[](std::size_t number) const noexcept {
      lease const& from = group_->is_held_ ? group_->held_ : own_;
      return view_at(group_->layouts_[number], from[number].address);
    }

   private:
    weight_group const* group_;
    lease own_;
  };
  [[nodiscard]] scope enter(any_store& store, stream_ref on) const {
    return scope{*this, store, on};
  }

 private:
  std::size_t take(block_id id, matrix_layout const& layout) {
    ids_.push_back(id);
    layouts_.push_back(layout);
    return ids_.size() - 1;
  }

  format::catalog const* catalog_ = nullptr;
  std::vector<block_id> ids_;
  std::vector<matrix_layout> layouts_;
  lease held_;
  bool is_held_ = false;
};

}  // namespace terrace::model
