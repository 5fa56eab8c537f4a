// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: the fastest level cannot be exclusive; there is no level above it
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size =
    size_of_chain<terrace::exclusive<cache<readable_tier>>, source>;
