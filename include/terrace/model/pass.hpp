// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/model/expert_directory.hpp>
#include <terrace/model/host_side.hpp>
#include <terrace/model/inner_values.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::model {

namespace detail {

/// What a pass has only on a device.
template <class Backend, bool OnDevice = Backend::on_device>
struct device_part {};
template <class Backend>
struct device_part<Backend, true> {
  expert_directory<Backend>* directory = nullptr;
  /// Null when the device computes everything.
  host_side<typename Backend::host_backend>* host = nullptr;
};

}  // namespace detail

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
  inner_watcher const* watcher = nullptr;  ///< told of inner values; null for nobody
  [[no_unique_address]] detail::device_part<Backend> device{};

  /// Shows the watcher `rows` rows of values in backend memory.
  void show(std::string_view name, float const* values, std::size_t rows, std::size_t cols) const {
    if (watcher == nullptr) { return; }
    std::vector<float> here;
    (*watcher)({name, rows, cols, backend.read(values, rows * cols, here)});
  }
};

}  // namespace terrace::model
