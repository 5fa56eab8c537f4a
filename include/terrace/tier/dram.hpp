// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/shim/numa.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace {

/// Main memory. Blocks of one rounded size share a class of equal slots cut from large mappings, so
/// a freed slot fits the next block of that size and 80,000 experts need a few thousand mappings.
///
/// The cap: live blocks plus freed slots whose pages are kept for reuse never exceed
/// `capacity_bytes`. Kept pages go back to the system when another class needs room, so there is no
/// fragmentation: `try_allocate` succeeds exactly when `used_bytes() + rounded_bytes(bytes) <=
/// capacity_bytes()`. Addresses are cheap and are never given back.
///
/// Slots start on multiples of the granularity. A block of 0 bytes takes one granule. Not
/// thread-safe.
/// Cost: O(1) amortised; one madvise per kept slot that moves to another class.
class dram {
 public:
  struct options {
    /// Drives and cores read large blocks faster through huge pages. Reserved ones are taken if the
    /// free ones can hold the capacity, else transparent ones.
    shim::page_kind pages = shim::page_kind::transparent_huge;
    int numa_node = -1;  ///< preferred node; -1 leaves it to the kernel
  };
  struct handle {
    std::byte* at = nullptr;
    friend bool operator==(handle const&, handle const&) = default;
  };
  static constexpr std::string_view name = "dram";
  static constexpr tier_traits traits{.host_readable = true, .granularity = 4096};

  /// Errors: not_supported or contract_error when `numa_node` cannot be had.
  explicit dram(std::size_t capacity_bytes) : dram{capacity_bytes, options{}} {}
  dram(std::size_t capacity_bytes, options wanted)
      : capacity_{capacity_bytes}, node_{wanted.numa_node}, pages_{wanted.pages} {
    if (node_ != -1) { shim::require_numa_node(node_); }
    if (pages_ == shim::page_kind::reserved_huge) { look_for_reserved_pages(); }
  }
  dram(dram&&) noexcept = default;
  dram& operator=(dram&&) noexcept = default;

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }
  /// Pages this tier holds: live blocks and freed slots kept for reuse. Never above the capacity.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return used_ + kept_; }
  /// What a block of `bytes` counts for: a multiple of the granularity, and of the huge page for
  /// blocks of at least one reserved huge page.
  [[nodiscard]] std::size_t rounded_bytes(std::size_t bytes) const noexcept {
    std::size_t const unit = in_reserved_pages(bytes) ? huge_page_bytes_ : traits.granularity;
    std::size_t const whole = std::max<std::size_t>(bytes, 1);
    return whole > SIZE_MAX - unit ? SIZE_MAX : round_up(whole, unit);
  }

  /// Errors: io_error when the operating system gives no more address space.
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    std::size_t const size = rounded_bytes(bytes);
    if (size > capacity_ - used_) { return std::nullopt; }
    size_class& wanted = classes_[size];
    if (!wanted.kept.empty()) {
      kept_ -= size;
      used_ += size;
      return pop(wanted.kept);
    }
    if (wanted.blank.empty() && wanted.fresh.size() < size) { map_more(wanted, size); }
    if (!make_room(size)) {
      throw io_error{"dram: the kernel would not take back unused pages, so " + format_size(size) +
                         " more would break the cap of " + format_size(capacity_),
                     0};
    }
    used_ += size;
    if (!wanted.blank.empty()) { return pop(wanted.blank); }
    std::byte* const at = wanted.fresh.data();
    // Advised slot by slot, a huge page never reaches past the slots in use.
    if (pages_ == shim::page_kind::transparent_huge && size >= least_advised_bytes) {
      shim::advise_huge(wanted.fresh.first(size));
    }
    wanted.fresh = wanted.fresh.subspan(size);
    return handle{at};
  }

  void deallocate(handle at, std::size_t bytes) noexcept {
    std::size_t const size = rounded_bytes(bytes);
    auto const owner = classes_.find(size);
    TERRACE_ASSERT(owner !=
                   classes_.end());       // else the byte count is not the one that was allocated
    owner->second.kept.push_back(at.at);  // room was reserved when the slot was mapped
    used_ -= size;
    kept_ += size;
  }

  [[nodiscard]] std::byte* address(handle at) const noexcept { return at.at; }

  /// The mappings behind the slots. They stay mapped while the tier lives, but the pages of freed
  /// slots may be given back and replaced, so only a range with a live block in it may be
  /// registered with a device.
  [[nodiscard]] std::span<shim::anonymous_memory const> regions() const noexcept {
    return regions_;
  }

  [[nodiscard]] shim::page_kind pages() const noexcept { return pages_; }
  /// "ordinary pages", "transparent huge pages, NUMA node 0 preferred".
  [[nodiscard]] std::string mode() const {
    static constexpr char const* names[] = {
        "ordinary pages", "transparent huge pages", "reserved huge pages"};
    std::string text = names[static_cast<unsigned>(pages_)];
    if (node_ != -1) { text += ", NUMA node " + std::to_string(node_) + " preferred"; }
    return text;
  }

 private:
  /// Smaller slots hold no whole huge page.
  static constexpr std::size_t least_advised_bytes = 2 * mib;

  /// Slots of one size that hold no block.
  struct size_class {
    std::vector<std::byte*> kept;   ///< freed, pages kept
    std::vector<std::byte*> blank;  ///< freed, pages given back
    std::span<std::byte> fresh;     ///< never used
    std::size_t slots = 0;          ///< all slots ever mapped
  };

  [[nodiscard]] bool in_reserved_pages(std::size_t bytes) const noexcept {
    return pages_ == shim::page_kind::reserved_huge && bytes >= huge_page_bytes_;
  }

  void look_for_reserved_pages() {
    auto const facts = shim::query_huge_pages();
    huge_page_bytes_ = facts.page_bytes;
    bool const enough =
        facts.page_bytes != 0 && facts.free_pages >= capacity_ / facts.page_bytes + 1;
    if (!enough) { pages_ = shim::page_kind::transparent_huge; }
  }

  [[nodiscard]] static handle pop(std::vector<std::byte*>& slots) noexcept {
    handle const at{slots.back()};
    slots.pop_back();
    return at;
  }

  /// Gives kept pages back until `size` more fit under the cap.
  [[nodiscard]] bool make_room(std::size_t size) noexcept {
    for (auto donor = classes_.begin(); size > capacity_ - used_ - kept_ && donor != classes_.end();
         ++donor) {
      auto& [slot_bytes, slots] = *donor;
      while (!slots.kept.empty() && size > capacity_ - used_ - kept_) {
        std::byte* const at = slots.kept.back();
        if (!shim::give_back({at, slot_bytes})) { return false; }
        slots.kept.pop_back();
        slots.blank.push_back(at);
        kept_ -= slot_bytes;
      }
    }
    return size <= capacity_ - used_ - kept_;
  }

  /// Maps slots for `wanted`: about 256 MiB at once, never more than the tier could fill.
  void map_more(size_class& wanted, std::size_t size) {
    std::size_t const most = std::max<std::size_t>(256 * mib / size, 1);
    std::size_t slots =
        std::min(most, capacity_ / size - std::min(wanted.slots, capacity_ / size - 1));
    wanted.kept.reserve(wanted.slots + slots);
    wanted.blank.reserve(wanted.slots + slots);
    regions_.reserve(regions_.size() + 1);
    shim::anonymous_memory region = map(slots * size, in_reserved_pages(size));
    if (node_ != -1) { shim::prefer_numa_node(region.bytes(), node_); }
    wanted.fresh = region.bytes();
    wanted.slots += slots;
    regions_.push_back(std::move(region));
  }

  [[nodiscard]] static shim::anonymous_memory map(std::size_t bytes, bool reserved) {
    if (reserved) {
      try {
        return shim::anonymous_memory{bytes, shim::page_kind::reserved_huge};
      } catch (io_error const&) {  // the pool shrank or an older class keeps its part of it;
                                   // ordinary pages do as well
      }
    }
    return shim::anonymous_memory{bytes};
  }

  std::size_t capacity_;
  int node_;
  shim::page_kind pages_;
  std::size_t huge_page_bytes_ = 0;
  std::size_t used_ = 0;
  std::size_t kept_ = 0;
  std::vector<shim::anonymous_memory> regions_;
  std::unordered_map<std::size_t, size_class> classes_;
};

static_assert(host_readable_tier<dram>);

}  // namespace terrace
