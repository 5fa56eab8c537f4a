// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/shim/cuda.hpp>

#include <kernel_cuda/support.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace terrace::test {

/// Keys and values of one sequence on the device, `pages` pages of `page_tokens`; rows of a token
/// lie together, keys first. With `values_in_keys` a value is the start of its key, as in absorbed
/// latent attention. Pages lie in reverse order, so that a kernel must follow the list.
class cache_of_pages {
 public:
  cache_of_pages(test_device const& device,
                 attention_shape const& shape,
                 std::size_t pages,
                 std::size_t page_tokens,
                 bool half,
                 bool values_in_keys)
      : device_{&device},
        layout_{.half = half, .page_tokens = page_tokens},
        memory_{row_of(shape, values_in_keys) * page_tokens * pages * layout_.element_bytes()},
        list_{pages} {
    std::size_t const keys = shape.kv_heads * shape.d_k;
    std::size_t const row = row_of(shape, values_in_keys);
    layout_.k_head_stride = shape.d_k;
    layout_.k_token_stride = row;
    layout_.v_offset = values_in_keys ? 0 : keys;
    layout_.v_head_stride = values_in_keys ? shape.d_k : shape.d_v;
    layout_.v_token_stride = row;
    std::size_t const page_bytes = row * page_tokens * layout_.element_bytes();
    std::vector<std::byte*> addresses(pages);
    for (std::size_t i = 0; i < pages; ++i) {
      addresses[i] = memory_.data() + (pages - 1 - i) * page_bytes;
    }
    shim::copy(
        device.stream(), list_.data(), addresses.data(), addresses.size() * sizeof(std::byte*));
    shim::synchronize(device.stream());
  }

  /// The list and the pages on the device.
  [[nodiscard]] kv_pages view() const { return {layout_, {list_.data(), list_.size()}}; }
  /// Fills all pages with a byte.
  void fill(unsigned char byte) const {
    shim::fill(device_->stream(), memory_.data(), byte, memory_.size());
  }
  /// The same cache copied to the host. It refers to memory in `into`.
  struct on_host {
    std::vector<std::byte> memory;
    std::vector<std::byte*> pages;
    kv_layout layout;
    [[nodiscard]] kv_pages view() const { return {layout, pages}; }
  };
  [[nodiscard]] on_host download() const {
    on_host all{.memory = device_->download(memory_), .pages = {}, .layout = layout_};
    std::size_t const page_bytes = all.memory.size() / list_.size();
    for (std::size_t i = 0; i < list_.size(); ++i) {
      all.pages.push_back(all.memory.data() + (list_.size() - 1 - i) * page_bytes);
    }
    return all;
  }

 private:
  static std::size_t row_of(attention_shape const& shape, bool values_in_keys) {
    return shape.kv_heads * (shape.d_k + (values_in_keys ? 0 : shape.d_v));
  }
  test_device const* device_;
  kv_layout layout_;
  device_array<std::byte> memory_;
  device_array<std::byte*> list_;
};

}  // namespace terrace::test
