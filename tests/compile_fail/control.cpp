// SPDX-License-Identifier: Apache-2.0
// expects: nothing, this compiles: without it a broken header would pass for a refused chain
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<cache<readable_tier>, source>;
