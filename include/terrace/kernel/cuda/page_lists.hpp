// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/buffer.hpp>
#include <terrace/kernel/cuda/upload_ring.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace terrace::kernel::cuda {

/// The pages of each layer of one sequence, listed in device memory. A list is as long as the
/// context from the start, so that its address and length never change.
class page_lists {
 public:
  void reserve(memory_account& account, std::size_t layers, std::size_t pages) {
    pages_ = pages;
    there_.reserve(account, layers * pages);
    sent_.assign(layers, {});
  }
  /// The whole list of a layer, for kernels; only entries that were `set` may be followed.
  [[nodiscard]] std::span<std::byte* const> layer(std::size_t index) const noexcept {
    return {there_.data() + index * pages_, pages_};
  }
  /// Sends what has changed in the list of a layer. Errors: contract_error beyond the reserved
  /// length.
  void set(upload_ring& ring, std::size_t layer, std::span<std::byte* const> pages) {
    if (pages.size() > pages_) {
      throw contract_error{std::to_string(pages.size()) + " pages of layer " +
                           std::to_string(layer) + " do not fit a list of " +
                           std::to_string(pages_)};
    }
    auto& sent = sent_[layer];
    std::size_t same = 0;
    while (same < sent.size() && same < pages.size() && sent[same] == pages[same]) { ++same; }
    sent.assign(pages.begin(), pages.end());
    if (same == pages.size()) { return; }
    auto const fresh = pages.subspan(same);
    ring.send(fresh.data(), fresh.size_bytes(), there_.data() + layer * pages_ + same);
  }

 private:
  buffer<std::byte*> there_;
  std::size_t pages_ = 0;
  std::vector<std::vector<std::byte*>> sent_;
};

}  // namespace terrace::kernel::cuda

#endif
