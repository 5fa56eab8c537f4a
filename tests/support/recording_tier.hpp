// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::test {

/// Passes every call on to a tier and notes it. Notes outlive the tier and are shared by its moves.
template <memory_tier Tier>
class recording_tier {
 public:
  using handle = typename Tier::handle;
  static constexpr std::string_view name = Tier::name;
  static constexpr tier_traits traits = Tier::traits;

  struct notes {
    std::vector<std::size_t> allocated;  ///< bytes of each granted allocation
    std::vector<std::size_t> freed;      ///< bytes of each deallocation
    std::size_t refused = 0;
    std::size_t peak_bytes = 0;
  };

  explicit recording_tier(Tier tier) : tier_{std::move(tier)} {}

  [[nodiscard]] std::shared_ptr<notes const> recorded() const noexcept { return notes_; }
  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return tier_.capacity_bytes(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return tier_.used_bytes(); }
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    auto at = tier_.try_allocate(bytes);
    if (at) {
      notes_->allocated.push_back(bytes);
      notes_->peak_bytes = std::max(notes_->peak_bytes, tier_.used_bytes());
    } else {
      ++notes_->refused;
    }
    return at;
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    notes_->freed.push_back(bytes);
    tier_.deallocate(at, bytes);
  }
  [[nodiscard]] std::byte* address(handle at) noexcept
    requires host_readable_tier<Tier>
  {
    return tier_.address(at);
  }

 private:
  Tier tier_;
  std::shared_ptr<notes> notes_ = std::make_shared<notes>();
};

}  // namespace terrace::test
