// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/copy/detail/lane_copies.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/tier/device_lane.hpp>
#include <terrace/tier/nvme.hpp>
#include <terrace/tier/staging_ring.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::copy::detail {

/// The extents of one block, from model files through the ring to a device.
///
/// Slots are read at whole pages of the file, a little more than what is wanted, so that direct
/// reads land in them without a bounce; the copy engine then takes just the block's bytes.
class staged_from_home final : public staged_copy {
 public:
  staged_from_home(nvme& home,
                   std::span<block_extent const> from,
                   device_lane& lane,
                   std::byte* to,
                   copy_words const& words)
      : home_{&home}, lane_{&lane}, to_{to}, words_{words}, left_(from.begin(), from.end()) {
    std::erase_if(left_, [](block_extent const& one) { return one.from.bytes == 0; });
    std::reverse(left_.begin(), left_.end());
  }

  [[nodiscard]] bool exhausted() const noexcept override { return left_.empty(); }

  [[nodiscard]] ticket bring(std::span<std::byte> slot, std::vector<staged_part>& parts) override {
    reads_.clear();
    for (std::size_t taken = 0; taken < slot.size() && !left_.empty();) {
      taken += take(slot.subspan(taken), parts);
    }
    return home_->read(reads_);
  }
  [[nodiscard]] ticket move_on(std::span<staged_part const> parts) override {
    return copy_parts_up(*lane_, parts, words_);
  }

 private:
  static constexpr std::uint64_t page = 4096;

  /// Plans the read of the next bytes into the start of `room`, which starts on a page; answers how
  /// much of it that takes, in whole pages.
  std::size_t take(std::span<std::byte> room, std::vector<staged_part>& parts) {
    auto& next = left_.back();
    std::uint64_t const first = next.from.offset / page * page;
    std::uint64_t const skip = next.from.offset - first;
    std::uint64_t const wanted = std::min(next.from.bytes, room.size() - skip);
    std::uint64_t const whole = round_up(skip + wanted, page);
    // The last page of a file is seldom whole.
    std::uint64_t const end =
        std::max(first + skip + wanted, std::min(first + whole, home_->file_bytes(next.from.file)));
    reads_.push_back({{next.from.file, first, end - first}, room.data()});
    parts.push_back({.staged = room.data() + skip, .block = to_ + next.to_offset, .bytes = wanted});
    next.from.offset += wanted;
    next.from.bytes -= wanted;
    next.to_offset += wanted;
    if (next.from.bytes == 0) { left_.pop_back(); }
    return whole;
  }

  nvme* home_;
  device_lane* lane_;
  std::byte* to_;
  copy_words words_;
  std::vector<block_extent> left_;  ///< the next one last
  std::vector<file_read> reads_;
};

/// Starts it. Reads, copies and other blocks' copies overlap as far as the ring reaches.
[[nodiscard]] inline ticket copy_from_home(nvme& home,
                                           std::span<block_extent const> from,
                                           device_lane& lane,
                                           std::byte* to,
                                           std::string_view tier) {
  copy_words const words{.from = "model files", .to = tier, .bytes = 0, .device = lane.device()};
  return lane.ring().start(std::make_unique<staged_from_home>(home, from, lane, to, words));
}

}  // namespace terrace::copy::detail

#endif
