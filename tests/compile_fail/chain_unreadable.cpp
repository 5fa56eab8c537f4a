// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: kernels cannot read the fastest level; it is neither host nor device
// readable
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<cache<opaque_tier>, source>;
