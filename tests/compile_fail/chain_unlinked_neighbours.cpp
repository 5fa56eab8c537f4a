// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: two neighbouring levels lack a copy_path in one direction; see terrace/copy/
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size =
    size_of_chain<cache<readable_tier>, cache<unlinked_tier>, source>;
