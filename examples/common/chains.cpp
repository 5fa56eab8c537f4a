// SPDX-License-Identifier: Apache-2.0
#include "chains.hpp"

#include <terrace/chain/tier_chain.hpp>
#include <terrace/copy/dram_to_pmem.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/copy/nvme_to_pmem.hpp>
#include <terrace/copy/pmem_to_dram.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/pmem.hpp>

#include <utility>

namespace terrace::runner {
namespace {

using dram_level = level<dram, evict::any>;
#if defined(TERRACE_HAS_PMEM2)
using pmem_level = level<pmem, evict::any>;
#endif

template <class... Parts>
std::unique_ptr<any_store> bind(chain_setup const& setup,
                                format::catalog const& catalog,
                                Parts... parts) {
  using chain = tier_chain<Parts...>;
  return std::make_unique<store<chain, prefetch::any>>(
      chain{std::move(parts)...},
      catalog.blocks(),
      prefetch::any{{setup.prefetch}},
      store_options{.placements = setup.placements});
}

dram_level make_dram(chain_setup const& setup) {
  return {.memory = dram{setup.dram_bytes},
          .evict = evict::any{{setup.evict}},
          .expert_slots = setup.expert_slots};
}
home<nvme> make_home(chain_setup const& setup, format::catalog const& catalog) {
  return {nvme{catalog.files(), setup.home}};
}
#if defined(TERRACE_HAS_PMEM2)
pmem_level make_pmem(chain_setup const& setup) {
  return {.memory = pmem{{.path = setup.pmem_path, .capacity_bytes = setup.pmem_bytes}},
          .evict = evict::any{{setup.evict}},
          .expert_slots = setup.chain->has_dram ? unlimited : setup.expert_slots};
}
#endif

}  // namespace

std::vector<std::string_view> chain_entry::tiers() const {
  std::vector<std::string_view> names;
  if (has_dram) { names.emplace_back("dram"); }
  if (has_pmem) { names.emplace_back("pmem"); }
  names.emplace_back("nvme");
  return names;
}

chain_entry const& find_chain(std::string_view name) {
  for (auto const& entry : chain_table) {
    if (entry.name == name) { return entry; }
  }
  throw contract_error{"there is no chain named `" + std::string{name} +
                       "`; --list-chains lists them"};
}

std::unique_ptr<any_store> make_store(chain_setup const& setup, format::catalog const& catalog) {
  if (setup.chain->name == "dram-nvme") {
    return bind(setup, catalog, make_dram(setup), make_home(setup, catalog));
  }
#if defined(TERRACE_HAS_PMEM2)
  if (setup.chain->name == "dram-pmem-nvme") {
    return bind(setup, catalog, make_dram(setup), make_pmem(setup), make_home(setup, catalog));
  }
  if (setup.chain->name == "dram-pmem-nvme-exclusive") {
    return bind(setup,
                catalog,
                make_dram(setup),
                exclusive<pmem_level>{make_pmem(setup)},
                make_home(setup, catalog));
  }
  if (setup.chain->name == "pmem-nvme") {
    return bind(setup, catalog, make_pmem(setup), make_home(setup, catalog));
  }
#endif
  throw not_supported{
      "the chain " + std::string{setup.chain->name} +
      " needs libpmem2, which this build was made without; install it and build again"};
}

}  // namespace terrace::runner
