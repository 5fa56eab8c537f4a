// SPDX-License-Identifier: Apache-2.0
// Tiers and copy paths to compose wrong chains from.
#pragma once

#include "support/archetypes.hpp"

#include <terrace/chain/tier_chain.hpp>
#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/ticket.hpp>

namespace terrace::test {

struct readable_tier : tier_archetype {
  static constexpr tier_traits traits{.host_readable = true};
  std::byte* address(handle) noexcept { return nullptr; }
};
struct unlinked_tier : readable_tier {};  // has a path from home, and none to another level
struct opaque_tier : tier_archetype {};   // has a path from home, and nothing can read it
struct distant_tier : readable_tier {};   // has no path from home

template <class Tier>
using cache = level<Tier, eviction_archetype>;
using source = home<home_archetype>;

/// Instantiates the chain type, which checks it.
template <class... Parts>
constexpr std::size_t size_of_chain = sizeof(tier_chain<Parts...>);

}  // namespace terrace::test

template <>
struct terrace::copy_path<terrace::test::home_archetype, terrace::test::readable_tier> {
  static ticket start();
};
template <>
struct terrace::copy_path<terrace::test::home_archetype, terrace::test::unlinked_tier> {
  static ticket start();
};
template <>
struct terrace::copy_path<terrace::test::home_archetype, terrace::test::opaque_tier> {
  static ticket start();
};
