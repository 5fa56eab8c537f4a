// SPDX-License-Identifier: Apache-2.0
// The least each concept allows. A template that compiles with an archetype asks for no more than
// its concept says.
#pragma once

#include <terrace/concepts/admission_policy.hpp>
#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/concepts/home.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/concepts/prefetch_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace terrace::test {

struct eviction_archetype {
  struct options {};
  explicit eviction_archetype(options) {}
  void admit(block_id, std::size_t) {}
  void touch(block_id) noexcept {}
  void forget(block_id) noexcept {}
  std::optional<block_id> victim(bool (&)(block_id)) { return std::nullopt; }
  void tick() noexcept {}
};

struct admission_archetype {
  bool admit(block_id) { return false; }
};

struct prefetch_archetype {
  void observe(access const&) {}
  void hint(lookahead const&) {}
  std::size_t suggest(std::span<block_id>) { return 0; }
};

struct tier_archetype {
  using handle = std::uint32_t;
  static constexpr std::string_view name = "archetype";
  static constexpr tier_traits traits{};
  std::size_t capacity_bytes() const noexcept { return 0; }
  std::size_t used_bytes() const noexcept { return 0; }
  std::optional<handle> try_allocate(std::size_t) { return std::nullopt; }
  void deallocate(handle, std::size_t) noexcept {}
};

struct home_archetype {
  static constexpr std::string_view name = "archetype";
  ticket read(std::span<file_read const>) { return {}; }
  std::string mode() const { return {}; }
  std::size_t staging_bytes() const noexcept { return 0; }
};

}  // namespace terrace::test
