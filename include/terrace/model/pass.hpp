// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::model {

/// What one forward pass over a batch of tokens works with. Borrowed by every part of the model.
template <class Backend>
struct pass {
  Backend& backend;
  any_store& store;
  /// Sequence state; already grown to first_position + tokens.
  typename Backend::page_lists const& pages;
  typename Backend::rope_table const& angles;  ///< of this batch's positions
  std::size_t first_position = 0;              ///< of token 0 of the batch
  std::size_t tokens = 0;
  bool read_ahead = true;   ///< start the next step's dense blocks while this one computes
  bool look_ahead = false;  ///< score the next layer's router early and hint the store
  std::vector<std::uint16_t>* routing =
      nullptr;  ///< appended [tokens][top_k] per mixture layer, by descending weight
};

}  // namespace terrace::model
