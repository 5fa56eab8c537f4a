// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/copy_path.hpp>
#include <terrace/concepts/home.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::testing {

/// Heap memory under a cap that fails the test's way when the cap or the byte counts are broken.
/// `Tag` makes distinct tiers of it; `far` is the tag of one whose memory stands for a device's
/// own.
inline constexpr int far = 9;
template <int Tag>
class heap_tier {
 public:
  using handle = std::byte*;
  static constexpr std::string_view name = Tag == 0 ? "upper" : Tag == far ? "far" : "lower";
  static constexpr tier_traits traits{.host_readable = Tag != far,
                                      .device_readable = Tag == far,
                                      .device_local = Tag == far,
                                      .granularity = 64};

  explicit heap_tier(std::size_t capacity) : capacity_{capacity} {}
  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    std::size_t const size = round_up(bytes, traits.granularity);
    if (used_ + size > capacity_) { return std::nullopt; }
    used_ += size;
    auto memory = std::make_unique<std::byte[]>(size);
    handle const at = memory.get();
    std::memset(at, 0xEE, size);
    live_[at] = {std::move(memory), size};
    return at;
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    auto const found = live_.find(at);
    TERRACE_ASSERT(found != live_.end() &&
                   found->second.size == round_up(bytes, traits.granularity));
    used_ -= found->second.size;
    live_.erase(found);
  }
  [[nodiscard]] std::byte* address(handle at) noexcept { return at; }
  /// Refuses more than a kibibyte, as a device that fails.
  void zero(handle at, std::size_t bytes)
    requires(Tag == far)
  {
    if (bytes > 1024) { throw cuda_error{"scripted failure", 1}; }
    std::memset(at, 0, bytes);
  }

 private:
  struct allocation {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size;
  };
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::map<handle, allocation> live_;
};

using far_tier = heap_tier<far>;

/// The byte a scripted home holds at an offset.
[[nodiscard]] inline std::byte home_byte(std::uint64_t offset) noexcept {
  return static_cast<std::byte>((offset * 2654435761U) >> 13U);
}

/// A home whose reads finish only when somebody waits for them, or when `polls` polls have gone by;
/// can be told to fail.
class scripted_home {
 public:
  static constexpr std::string_view name = "scripted";
  static constexpr tier_traits traits{.host_readable = false, .persistent = true};
  struct script {
    int polls_until_done = 3;
    std::uint64_t failing_offset = UINT64_MAX;  ///< a read that covers it fails
    int reads_started = 0;
    int most_in_flight = 0;
    int in_flight = 0;
  };

  explicit scripted_home(std::shared_ptr<script> plan) : plan_{std::move(plan)} {}
  [[nodiscard]] std::string mode() const { return "scripted"; }
  [[nodiscard]] std::size_t staging_bytes() const noexcept { return 0; }
  [[nodiscard]] ticket read(std::span<file_read const> work) {
    return ticket{
        std::make_unique<pending>(plan_, std::vector<file_read>(work.begin(), work.end()))};
  }

 private:
  class pending final : public ticket::operation {
   public:
    pending(std::shared_ptr<script> plan, std::vector<file_read> work)
        : plan_{std::move(plan)}, work_{std::move(work)} {
      ++plan_->reads_started;
      plan_->most_in_flight = std::max(plan_->most_in_flight, ++plan_->in_flight);
    }
    ~pending() override { --plan_->in_flight; }
    bool ready() noexcept override { return ++polls_ > plan_->polls_until_done; }
    void wait() override {
      for (auto const& one : work_) {
        if (plan_->failing_offset - one.from.offset < one.from.bytes) {
          throw io_error{"scripted failure", 5};
        }
        for (std::uint64_t i = 0; i < one.from.bytes; ++i) {
          one.to[i] = home_byte(one.from.offset + i);
        }
      }
    }

   private:
    std::shared_ptr<script> plan_;
    std::vector<file_read> work_;
    int polls_ = 0;
  };
  std::shared_ptr<script> plan_;
};

}  // namespace terrace::testing

template <int Tag>
struct terrace::copy_path<terrace::testing::scripted_home, terrace::testing::heap_tier<Tag>> {
  static ticket start(terrace::testing::scripted_home& home,
                      std::span<block_extent const> pieces,
                      terrace::testing::heap_tier<Tag>& tier,
                      std::byte* at) {
    std::vector<file_read> work;
    for (auto const& piece : pieces) {
      work.push_back({piece.from, tier.address(at) + piece.to_offset});
    }
    return home.read(work);
  }
};

template <int From, int To>
struct terrace::copy_path<terrace::testing::heap_tier<From>, terrace::testing::heap_tier<To>> {
  static ticket start(terrace::testing::heap_tier<From>&,
                      std::byte* from,
                      terrace::testing::heap_tier<To>&,
                      std::byte* to,
                      std::size_t bytes) {
    std::memcpy(to, from, bytes);
    return {};
  }
};
