// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::tier::detail {

/// Memory that is dear to take, in slots that are taken one by one and kept for the next block of
/// their size.
///
/// The cap: live slots and kept ones together never exceed `capacity_bytes`; kept ones go when
/// another size needs room, so there is no fragmentation. Not thread-safe.
/// Cost: O(1) amortised.
template <class Memory>
class slot_cache {
 public:
  explicit slot_cache(std::size_t capacity_bytes) noexcept : capacity_{capacity_bytes} {}

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return used_ + kept_; }

  /// A slot of `size` bytes, from `make(size)` (a `std::optional<Memory>`) if none is kept. Nothing
  /// when the cap leaves no room, or when `make` has none although nothing is kept any more.
  template <class Make>
  [[nodiscard]] std::optional<std::byte*> try_take(std::size_t size, Make&& make) {
    if (size > capacity_ - used_) { return std::nullopt; }
    auto& same = sizes_[size];
    if (!same.kept.empty()) {
      std::byte* const at = same.kept.back();
      same.kept.pop_back();
      kept_ -= size;
      used_ += size;
      return at;
    }
    drop_kept_until(capacity_ - used_ - size);
    auto made = make(size);
    if (!made && kept_ > 0) {
      drop_kept_until(0);
      made = make(size);
    }
    if (!made) { return std::nullopt; }
    same.kept.reserve(same.slots + 1);  // giving a slot back must not fail
    std::byte* const at = made->data();
    slots_.emplace(at, std::move(*made));
    ++same.slots;
    used_ += size;
    return at;
  }
  void give_back(std::byte* at, std::size_t size) noexcept {
    sizes_.find(size)->second.kept.push_back(at);
    used_ -= size;
    kept_ += size;
  }

 private:
  struct slots_of_a_size {
    std::vector<std::byte*> kept;
    std::size_t slots = 0;
  };

  void drop_kept_until(std::size_t most) noexcept {
    for (auto& [size, one] : sizes_) {
      while (kept_ > most && !one.kept.empty()) {
        slots_.erase(one.kept.back());
        one.kept.pop_back();
        --one.slots;
        kept_ -= size;
      }
    }
  }

  std::size_t capacity_;
  std::size_t used_ = 0;
  std::size_t kept_ = 0;
  std::unordered_map<std::byte*, Memory> slots_;
  std::unordered_map<std::size_t, slots_of_a_size> sizes_;
};

}  // namespace terrace::tier::detail
