// SPDX-License-Identifier: Apache-2.0
// expects: store: sequence state cannot live in the fastest level; its tier has no zero
#include "parts.hpp"

#include <terrace/chain/store.hpp>

namespace terrace::test {

struct far_tier : tier_archetype {
  static constexpr tier_traits traits{.device_readable = true};
  std::byte* address(handle) noexcept { return nullptr; }
};

}  // namespace terrace::test

template <>
struct terrace::copy_path<terrace::test::home_archetype, terrace::test::far_tier> {
  static ticket start(terrace::test::home_archetype&,
                      std::span<terrace::block_extent const>,
                      terrace::test::far_tier&,
                      terrace::test::far_tier::handle);
};

template class terrace::store<
    terrace::tier_chain<terrace::test::cache<terrace::test::far_tier>, terrace::test::source>>;
