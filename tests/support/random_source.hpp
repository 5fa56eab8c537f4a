// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

namespace terrace::test {

/// The same 32-bit numbers on every machine for a seed, which a failing test prints.
class random_source {
 public:
  explicit random_source(std::uint32_t seed) : engine_{seed} {}
  [[nodiscard]] std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

}  // namespace terrace::test
