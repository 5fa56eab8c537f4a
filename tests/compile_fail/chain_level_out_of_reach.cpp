// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: a level has no copy_path from home; see terrace/copy/
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<cache<distant_tier>, source>;
