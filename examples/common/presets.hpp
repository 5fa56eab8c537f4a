// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <terrace/runtime/plan.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::runner {

/// Where a preset keeps routed experts.
enum class preset_experts : unsigned char {
  pageable,            ///< all in the page cache
  last_layers_pinned,  ///< those of the last layers pinned on the device, the rest pageable
  first_layers_local,  ///< those of the first layers on the device, the rest for the host
  on_device,           ///< all, for good
  on_host,             ///< all, and computed there
};

/// A named chain with its placement and its dispatch: a way of running models larger than a
/// device's memory that is known by results others have published.
struct preset {
  std::string_view name;
  std::string_view chain;
  std::string_view dispatch;
  preset_experts experts = preset_experts::pageable;
  int devices = 1;
  std::string_view meaning;
};

inline constexpr int preset_pinned_layers = 6;  ///< most, of `last_layers_pinned`

inline constexpr std::array<preset, 8> preset_table{{
    {"spark-a",
     "unified-pinned-nvme",
     "device",
     preset_experts::last_layers_pinned,
     1,
     "dense weights and state in unified memory, experts of the last 6 layers pinned there, other "
     "experts pageable, all computed on the device"},
    {"spark-b",
     "unified-pinned-nvme",
     "device",
     preset_experts::pageable,
     1,
     "dense weights and state in unified memory, experts pageable, all computed on the device"},
    {"spark-c",
     "unified-pinned-nvme",
     "min-batch:32",
     preset_experts::pageable,
     1,
     "dense weights and state in unified memory, experts pageable, computed on the device from 32 "
     "tokens on and on the host below"},
    {"spark-d",
     "unified-nvme",
     "device",
     preset_experts::on_device,
     1,
     "everything in unified memory on the device"},
    {"spark-e",
     "dram-nvme",
     "host",
     preset_experts::on_host,
     0,
     "everything on the host, experts in the page cache"},
    {"3090-a",
     "unified-pinned-nvme",
     "device",
     preset_experts::pageable,
     1,
     "dense weights and state in unified memory, experts pageable, all computed on the device"},
    {"3090-b",
     "vram-dram-nvme",
     "host",
     preset_experts::first_layers_local,
     1,
     "as many of the first layers as fit wholly in the device's memory, the experts of the other "
     "layers in main memory and computed on the host"},
    {"3090-c",
     "unified-pinned-nvme",
     "device",
     preset_experts::pageable,
     2,
     "3090-a over two devices"},
}};

/// Null for a name that is not in the table.
[[nodiscard]] preset const* find_preset(std::string_view name);

/// Gives options what their preset stands for, as far as no model is needed for it: chain, backend,
/// how files are read, who may leave; and the dispatch, unless one was asked for. A cap of VRAM
/// becomes the cap of the tier that is the device's memory.
/// Errors: not_supported for what this build lacks and for fewer devices than it takes.
void apply_preset(preset const& one, bool keep_dispatch, options& wanted);

/// The rules that place experts, for a fastest tier of that size.
[[nodiscard]] std::vector<std::string> preset_rules(preset const& one,
                                                    runtime::requirements const& needs,
                                                    std::uint64_t capacity_bytes);

/// What the preset stands for, and the options it comes to here; some lines for people.
[[nodiscard]] std::string describe(preset const& one,
                                   std::vector<std::string> const& rules,
                                   options const& wanted);

}  // namespace terrace::runner
