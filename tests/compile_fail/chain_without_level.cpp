// SPDX-License-Identifier: Apache-2.0
// expects: tier_chain: needs at least one level and a home
#include "parts.hpp"

using namespace terrace::test;

[[maybe_unused]] constexpr auto size = size_of_chain<source>;
