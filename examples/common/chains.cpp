// SPDX-License-Identifier: Apache-2.0
#include "chains.hpp"

#include "store_parts.hpp"

#include <terrace/copy/dram_to_pmem.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/copy/nvme_to_pmem.hpp>
#include <terrace/copy/pmem_to_dram.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/pmem.hpp>

#include <algorithm>

namespace terrace::runner {
namespace {

tier_entry const* find_tier(std::string_view name) {
  auto const found = std::find_if(tier_table.begin(),
                                  tier_table.end(),
                                  [name](tier_entry const& one) { return one.name == name; });
  return found == tier_table.end() ? nullptr : &*found;
}

}  // namespace

std::vector<tier_entry const*> chain_entry::tiers() const {
  std::vector<tier_entry const*> all;
  for (auto rest = name; all.empty() || all.back()->memory != tier_memory::file;) {
    auto const dash = rest.find('-');
    all.push_back(find_tier(rest.substr(0, dash)));
    rest.remove_prefix(std::min(dash, rest.size() - 1) + 1);
  }
  return all;
}

bool chain_entry::has(std::string_view tier) const {
  auto const all = tiers();
  return std::any_of(
      all.begin(), all.end(), [tier](tier_entry const* one) { return one->name == tier; });
}

bool chain_entry::needs_cuda() const {
  auto const all = tiers();
  return std::any_of(
      all.begin(), all.end(), [](tier_entry const* one) { return one->component == "CUDA"; });
}

std::string_view chain_entry::lacks() const {
  for (auto const* one : tiers()) {
    if (!one->built) { return one->component; }
  }
  return {};
}

chain_entry const& find_chain(std::string_view name) {
  for (auto const& entry : chain_table) {
    if (entry.name == name) { return entry; }
  }
  throw contract_error{"there is no chain named `" + std::string{name} +
                       "`; --list-chains lists them"};
}

std::unique_ptr<any_store> make_store(chain_setup const& setup, format::catalog const& catalog) {
  auto const name = setup.chain->name;
  if (auto const missing = setup.chain->lacks(); !missing.empty()) {
    throw not_supported{"the chain " + std::string{name} + " needs " + std::string{missing} +
                        ", which this build was made without; install it and build again"};
  }
#if defined(TERRACE_HAS_CUDA)
  if (setup.chain->needs_cuda()) { return make_cuda_store(setup, catalog); }
#endif
  if (name == "dram-nvme") { return bind(setup, catalog, {}, make_level<dram>(setup, 0)); }
#if defined(TERRACE_HAS_PMEM2)
  if (name == "dram-pmem-nvme") {
    return bind(setup, catalog, {}, make_level<dram>(setup, 0), make_level<pmem>(setup, 1));
  }
  if (name == "dram-pmem-nvme-exclusive") {
    return bind(setup,
                catalog,
                {},
                make_level<dram>(setup, 0),
                exclusive<any_level<pmem>>{make_level<pmem>(setup, 1)});
  }
  if (name == "pmem-nvme") { return bind(setup, catalog, {}, make_level<pmem>(setup, 0)); }
#endif
  throw contract_error{"the chain " + std::string{name} + " is in the table but nothing makes it"};
}

}  // namespace terrace::runner
