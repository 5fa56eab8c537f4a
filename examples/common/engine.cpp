// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "models.hpp"
#include "traced_store.hpp"

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
  pipeline_ = make_model_pipeline(catalog, store, plan_.pipeline, plan_.memory);
}

std::vector<observe::tier_counters> engine::counters() const {
  auto tiers = store_->counters();
  if (plan_.setup.chain->has_dram) {
    auto& memory = tiers.front();
    memory.capacity_bytes += plan_.memory.staging_bytes;
    memory.used_bytes += plan_.memory.staging_bytes;
    memory.peak_bytes += plan_.memory.staging_bytes;
  }
  return tiers;
}

}  // namespace terrace::runner
