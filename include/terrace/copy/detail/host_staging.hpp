// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/copy/detail/lane_copies.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/ticket.hpp>
#include <terrace/tier/device_lane.hpp>
#include <terrace/tier/staging_ring.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

/// Copies between a device and pageable memory, which no copy engine reads at speed: the calling
/// thread moves bytes in or out of the ring.
namespace terrace::copy::detail {

/// One run of bytes on the host and one on the device, taken a slot at a time.
class host_staging : public staged_copy {
 public:
  host_staging(device_lane& lane, std::byte* host, std::byte* device, copy_words const& words)
      : lane_{&lane}, words_{words}, host_{host}, device_{device} {}

  [[nodiscard]] bool exhausted() const noexcept override { return done_ == words_.bytes; }

 protected:
  /// The next bytes that fit into the slot; `at` is the host's or the device's end of the copy.
  staged_part next(std::span<std::byte> slot, std::byte* at) noexcept {
    std::size_t const bytes = std::min(slot.size(), words_.bytes - done_);
    staged_part const part{.staged = slot.data(), .block = at + done_, .bytes = bytes};
    done_ += bytes;
    return part;
  }

  device_lane* lane_;
  copy_words words_;
  std::byte* host_;
  std::byte* device_;
  std::size_t done_ = 0;
};

class staged_from_host final : public host_staging {
 public:
  using host_staging::host_staging;
  [[nodiscard]] ticket bring(std::span<std::byte> slot, std::vector<staged_part>& parts) override {
    std::byte const* const from = host_ + done_;
    parts.push_back(next(slot, device_));
    std::memcpy(slot.data(), from, parts.back().bytes);
    return {};
  }
  [[nodiscard]] ticket move_on(std::span<staged_part const> parts) override {
    return copy_parts_up(*lane_, parts, words_);
  }
};

/// How bytes leave the ring for plain memory.
struct plain_store {
  void operator()(std::byte* to, std::byte const* from, std::size_t bytes) const noexcept {
    std::memcpy(to, from, bytes);
  }
};

/// `Store(to, from, bytes)` puts bytes of the ring in their place.
template <class Store = plain_store>
class staged_to_host final : public host_staging {
 public:
  staged_to_host(device_lane& lane,
                 std::byte* host,
                 std::byte* device,
                 copy_words const& words,
                 Store store = {})
      : host_staging{lane, host, device, words}, store_{store} {}

  [[nodiscard]] ticket bring(std::span<std::byte> slot, std::vector<staged_part>& parts) override {
    parts.push_back(next(slot, device_));
    return copy_parts_down(*lane_, parts, words_);
  }
  [[nodiscard]] ticket move_on(std::span<staged_part const> parts) override {
    for (auto const& part : parts) {
      store_(host_ + (part.block - device_), part.staged, part.bytes);
    }
    return {};
  }

 private:
  Store store_;
};

}  // namespace terrace::copy::detail

#endif
