// SPDX-License-Identifier: Apache-2.0
#include "placing.hpp"

#include <terrace/core/error.hpp>
#include <terrace/placement/rules.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace terrace::runner {
namespace {

using runtime::compute_backend;

std::vector<std::string_view> names_of(std::vector<tier_entry const*> const& tiers) {
  std::vector<std::string_view> names;
  for (auto const* tier : tiers) { names.push_back(tier->name); }
  return names;
}

}  // namespace

placing place_blocks(format::catalog const& catalog,
                     chain_entry const& chain,
                     std::vector<std::string> const& texts) {
  auto const tiers = names_of(chain.tiers());
  placing result;
  result.pinned.resize(tiers.size() - 1);
  if (texts.empty()) { return result; }
  auto rules = placement::rules::parse(texts, tiers);
  for (auto const& block : catalog.blocks()) {
    auto const placed = rules.place(block);
    if (!placed) { continue; }
    auto const level = static_cast<std::size_t>(
        std::find(tiers.begin(), tiers.end(), placed->tier) - tiers.begin());
    if (placed->pin && level + 1 == tiers.size()) {
      throw contract_error{fmt::format(
          "--place: {} cannot be pinned in {}, the home, which holds everything already; "
          "pin it in {}",
          block.names.front(),
          placed->tier,
          chain.fastest().name)};
    }
    if (level > 0) { result.elsewhere.push_back({.id = block.id, .level = level}); }
    if (placed->pin) { result.pinned[level].push_back(block.id); }
  }
  if (auto const unused = rules.unused(); !unused.empty()) {
    throw contract_error{fmt::format(
        "--place '{}' matched no tensor that an earlier rule had left; correct it or leave "
        "it out",
        unused.front())};
  }
  return result;
}

bool check_readers(format::catalog const& catalog,
                   chain_entry const& chain,
                   placing const& placed,
                   runtime::pipeline_options const& pipeline) {
  bool const on_device = pipeline.backend == compute_backend::cuda;
  auto const tiers = chain.tiers();
  std::unordered_map<std::uint64_t, std::size_t> levels;
  for (auto const& one : placed.elsewhere) {
    // What lives at home is read through the fastest tier.
    levels[static_cast<std::uint64_t>(one.id)] = one.level + 1 == tiers.size() ? 0 : one.level;
  }
  bool choice = false;
  for (auto const& block : catalog.blocks()) {
    auto const found = levels.find(static_cast<std::uint64_t>(block.id));
    auto const& tier = *tiers[found == levels.end() ? 0 : found->second];
    bool const expert = kind_of(block.id) == block_kind::expert;
    bool const by_host = !on_device || (expert && tier.host_reads && pipeline.dispatch == "host");
    choice = choice || (expert && tier.host_reads);
    if (by_host ? tier.host_reads : tier.device_reads) { continue; }
    throw contract_error{fmt::format(
        "--place: {} would lie in {}, which {} does not read; place it in another tier{}",
        block.names.front(),
        tier.name,
        by_host ? "the host" : "the device",
        expert && tier.host_reads ? ", or let the host compute experts (--dispatch host)" : "")};
  }
  return on_device && choice;
}

}  // namespace terrace::runner
