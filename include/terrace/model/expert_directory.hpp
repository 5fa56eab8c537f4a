// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/residency_watcher.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <vector>

namespace terrace::model {

/// Where a device reads the experts of every layer, as the store moves them: the residency table on
/// the device. Kernels look the experts of a whole layer up by themselves, so that router ids need
/// not visit the host.
///
/// Cost: a few words per expert, in the device's memory too; a layer is sent again after a change.
template <class Backend>
class expert_directory final : public residency_watcher {
 public:
  using table = typename Backend::expert_table;

  /// Of layers [0, layers) with `experts` experts each. The backend is borrowed.
  expert_directory(Backend& backend, int layers, int experts)
      : backend_{&backend},
        experts_{static_cast<std::size_t>(experts)},
        layers_(static_cast<std::size_t>(layers)) {}

  void arrived(block_info const& block, std::byte const* address) override {
    if (auto* const layer = layer_with(block.id)) {
      if (layer->experts.size() == 0) { layer->experts.assign(experts_); }
      layer->experts.set(index_of(block.id), block, address);
      ++layer->present;
      layer->changed = true;
    }
  }
  void leaving(block_id id) noexcept override {
    if (auto* const layer = layer_with(id)) {
      if (layer->read_whole) { wait_for_readers(); }
      layer->experts.clear(index_of(id));
      --layer->present;
      layer->changed = true;
    }
  }

  /// The table of a layer all of whose experts are here, as work queued from now on may read it
  /// until the next change; null when some are not here.
  [[nodiscard]] table const* whole(layer_id id) {
    auto& layer = layers_[static_cast<std::size_t>(id)];
    if (layer.present < experts_) { return nullptr; }
    if (layer.changed) {
      backend_->send(layer.experts);
      layer.changed = false;
    }
    layer.read_whole = true;
    return &layer.experts;
  }

 private:
  struct layer_table {
    table experts;
    std::size_t present = 0;
    bool changed = true;
    bool read_whole = false;  ///< without leases, since the backend was last waited for
  };

  [[nodiscard]] layer_table* layer_with(block_id id) noexcept {
    bool const here = kind_of(id) == block_kind::expert && index_of(id) < experts_ &&
                      static_cast<std::size_t>(layer_of(id)) < layers_.size();
    return here ? &layers_[static_cast<std::size_t>(layer_of(id))] : nullptr;
  }
  /// Kernels that read whole layers hold no lease; before one of their experts may go they must be
  /// done.
  void wait_for_readers() noexcept {
    backend_->drain();
    for (auto& layer : layers_) { layer.read_whole = false; }
  }

  Backend* backend_;
  std::size_t experts_;
  std::vector<layer_table> layers_;
};

}  // namespace terrace::model
