// SPDX-License-Identifier: Apache-2.0
#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/units.hpp>

int main() {
  using namespace terrace;
  return layer_of(expert_block(layer_id{3}, expert_id{17})) == layer_id{3} &&
                 parse_size("1KiB") == kib
             ? 0
             : 1;
}
