// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: the last part must be home<...>, the tier that holds every block
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<cache<readable_tier>, cache<unlinked_tier>>;
