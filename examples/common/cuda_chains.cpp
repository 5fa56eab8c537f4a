// SPDX-License-Identifier: Apache-2.0
#include "store_parts.hpp"

#include <terrace/copy/dram_to_vram.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/copy/nvme_to_pinned.hpp>
#include <terrace/copy/nvme_to_pmem.hpp>
#include <terrace/copy/nvme_to_unified.hpp>
#include <terrace/copy/nvme_to_vram.hpp>
#include <terrace/copy/pinned_to_unified.hpp>
#include <terrace/copy/pinned_to_vram.hpp>
#include <terrace/copy/pmem_to_vram.hpp>
#include <terrace/copy/unified_to_pinned.hpp>
#include <terrace/copy/vram_to_dram.hpp>
#include <terrace/copy/vram_to_pinned.hpp>
#include <terrace/copy/vram_to_pmem.hpp>
#include <terrace/shim/cuda_tickets.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/pmem.hpp>
#include <terrace/tier/unified.hpp>
#include <terrace/tier/vram.hpp>

#if defined(TERRACE_HAS_CUDA)

namespace terrace::runner {

std::unique_ptr<any_store> make_cuda_store(chain_setup const& setup,
                                           format::catalog const& catalog) {
  auto const name = setup.chain->name;
  auto const done = [work = shim::ticket_source{setup.device}](stream_ref on) {
    return work.after(on);
  };
  if (name == "vram-nvme") { return bind(setup, catalog, done, make_level<vram>(setup, 0)); }
  if (name == "vram-dram-nvme") {
    return bind(setup, catalog, done, make_level<vram>(setup, 0), make_level<dram>(setup, 1));
  }
  if (name == "vram-pinned-nvme") {
    return bind(setup, catalog, done, make_level<vram>(setup, 0), make_level<pinned>(setup, 1));
  }
#if defined(TERRACE_HAS_PMEM2)
  if (name == "vram-pmem-nvme") {
    return bind(setup, catalog, done, make_level<vram>(setup, 0), make_level<pmem>(setup, 1));
  }
#endif
  if (name == "pinned-nvme") { return bind(setup, catalog, done, make_level<pinned>(setup, 0)); }
  if (name == "unified-nvme") { return bind(setup, catalog, done, make_level<unified>(setup, 0)); }
  if (name == "unified-pinned-nvme") {
    return bind(setup, catalog, done, make_level<unified>(setup, 0), make_level<pinned>(setup, 1));
  }
  throw contract_error{"the chain " + std::string{name} + " is in the table but nothing makes it"};
}

}  // namespace terrace::runner

#endif
