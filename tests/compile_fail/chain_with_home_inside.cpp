// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: only the last part may be home<...>
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<cache<readable_tier>, source, source>;
