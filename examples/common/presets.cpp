// SPDX-License-Identifier: Apache-2.0
#include "presets.hpp"

#include "chains.hpp"
#include "devices.hpp"

#include <terrace/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace terrace::runner {
namespace {

bool is_pageable(preset const& one) {
  return one.experts == preset_experts::pageable ||
         one.experts == preset_experts::last_layers_pinned;
}

/// The mixture layers, first or last of them in front, whose experts fit into `room` together.
std::vector<std::uint32_t> layers_within(runtime::requirements const& needs,
                                         std::uint64_t room,
                                         bool from_last,
                                         std::size_t most) {
  std::vector<runtime::requirements::step const*> mixtures;
  for (auto const& step : needs.steps) {
    if (step.expert_bytes > 0) { mixtures.push_back(&step); }
  }
  if (from_last) { std::reverse(mixtures.begin(), mixtures.end()); }
  std::vector<std::uint32_t> layers;
  for (auto const* step : mixtures) {
    std::uint64_t const bytes = step->expert_bytes * static_cast<std::uint64_t>(needs.experts);
    if (layers.size() == most || bytes > room) { break; }
    room -= bytes;
    layers.push_back(static_cast<std::uint32_t>(step->layer));
  }
  return layers;
}

std::string rule_for(std::vector<std::uint32_t> layers, std::string_view target) {
  std::sort(layers.begin(), layers.end());
  return fmt::format("blk\\.({})\\..*_exps={}", fmt::join(layers, "|"), target);
}

}  // namespace

preset const* find_preset(std::string_view name) {
  auto const found = std::find_if(preset_table.begin(),
                                  preset_table.end(),
                                  [name](preset const& one) { return one.name == name; });
  return found == preset_table.end() ? nullptr : &*found;
}

void apply_preset(preset const& one, bool keep_dispatch, options& wanted) {
  auto const& chain = find_chain(one.chain);
  if (auto const missing = chain.lacks(); !missing.empty()) {
    throw not_supported{fmt::format(
        "--preset {}: this build has no {}; install it and build again", one.name, missing)};
  }
  if (one.devices > 1) {
    throw not_supported{fmt::format(
        "--preset {} is {}, and this {}; use 3090-a",
        one.name,
        one.meaning,
        cuda_devices() < one.devices
            ? fmt::format(
                  "machine has {} CUDA device{}", cuda_devices(), cuda_devices() == 1 ? "" : "s")
            : "version computes a model on one")};
  }
  wanted.chain.name = one.chain;
  wanted.chain.made_by = &one;
  wanted.chain.buffered = is_pageable(one) || one.experts == preset_experts::on_host;
  if (one.experts == preset_experts::on_device) { wanted.chain.evict = "pinned"; }
  bool const on_device = one.devices > 0;
  wanted.backend = on_device ? runtime::compute_backend::cuda : runtime::compute_backend::cpu;
  if (!keep_dispatch) { wanted.dispatch = one.dispatch; }
  if (wanted.chain.vram && chain.has("unified")) {
    wanted.chain.unified = wanted.chain.vram;
    wanted.chain.vram.reset();
  }
}

std::vector<std::string> preset_rules(preset const& one,
                                      runtime::requirements const& needs,
                                      std::uint64_t capacity_bytes) {
  if (needs.experts == 0) { return {}; }
  std::uint64_t const fixed = needs.state_bytes + needs.compute_bytes + needs.dense_bytes();
  std::uint64_t const room = capacity_bytes - std::min(capacity_bytes, fixed);
  auto const all = static_cast<std::size_t>(needs.mixture_layers);
  switch (one.experts) {
    case preset_experts::pageable:
      return {"_exps=pinned"};
    case preset_experts::last_layers_pinned: {
      auto const layers = layers_within(needs, room, true, preset_pinned_layers);
      std::vector<std::string> rules;
      if (!layers.empty()) { rules.push_back(rule_for(layers, "unified:pin")); }
      if (layers.size() < all) { rules.emplace_back("_exps=pinned"); }
      return rules;
    }
    case preset_experts::first_layers_local: {
      auto const layers = layers_within(needs, room, false, all);
      std::vector<std::string> rules;
      if (!layers.empty()) { rules.push_back(rule_for(layers, "vram:pin")); }
      if (layers.size() < all) { rules.emplace_back("_exps=dram"); }
      return rules;
    }
    case preset_experts::on_device:
    case preset_experts::on_host:
      break;
  }
  return {};
}

std::string describe(preset const& one,
                     std::vector<std::string> const& rules,
                     options const& wanted) {
  auto text = fmt::format("preset {}: {}\n", one.name, one.meaning);
  text += fmt::format("  by hand: --chain {}", one.chain);
  for (auto const& rule : rules) { text += fmt::format(" --place '{}'", rule); }
  if (one.devices > 0) { text += fmt::format(" --backend cuda --dispatch {}", wanted.dispatch); }
  if (wanted.chain.evict) { text += fmt::format(" --evict {}", *wanted.chain.evict); }
  text += "\n";
  if (is_pageable(one)) {
    text += fmt::format(
        "  pageable: buffered reads of the model file into pinned memory that kernels read in place"
        "{}\n",
        reads_pageable_memory(wanted.device)
            ? ""
            : fmt::format("; CUDA device {} does not read the page cache itself", wanted.device));
  }
  return text;
}

}  // namespace terrace::runner
