// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "models.hpp"
#include "traced_store.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace terrace::runner {

engine::engine(format::catalog const& catalog,
               chain_plan plan,
               observe::trace_writer* trace,
               load_observer on_load)
    : plan_{std::move(plan)}, store_{make_store(plan_.setup, catalog)} {
  if (trace != nullptr) { traced_ = std::make_unique<traced_store>(*store_, *trace); }
  plan_.pipeline.on_load = std::move(on_load);
  any_store& store = traced_ ? *traced_ : *store_;
  pipeline_ = make_model_pipeline(catalog, store, plan_.pipeline, plan_.fastest().memory);
}

std::vector<observe::tier_counters> engine::counters() const {
  auto tiers = store_->counters();
  for (std::size_t level = 0; level < plan_.levels.size(); ++level) {
    auto const& memory = plan_.levels[level].memory;
    std::uint64_t const beside = memory.staging_bytes + memory.compute_bytes;
    tiers[level].capacity_bytes += beside;
    tiers[level].used_bytes += beside;
    tiers[level].peak_bytes += beside;
  }
  return tiers;
}

}  // namespace terrace::runner
