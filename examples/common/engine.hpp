// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain_plan.hpp"

#include <terrace/chain/any_store.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/observe/counters.hpp>
#include <terrace/observe/trace.hpp>
#include <terrace/runtime/pipeline.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace terrace::runner {

/// A model that runs: its chain and its pipeline, made from a plan.
class engine {
 public:
  using load_observer = std::function<void(std::uint64_t done, std::uint64_t total)>;

  /// Reads what the plan pins. The catalog must outlive the engine, and so must `trace`, which is
  /// told of every set of blocks that is acquired; null for none.
  engine(format::catalog const& catalog,
         chain_plan plan,
         observe::trace_writer* trace = nullptr,
         load_observer on_load = {});

  [[nodiscard]] chain_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] runtime::pipeline& pipeline() noexcept { return *pipeline_; }
  /// Per tier from fast to home; staging counts under the fastest tier that is main memory, what
  /// kernels work with under the fastest if it is a device's.
  [[nodiscard]] std::vector<observe::tier_counters> counters() const;

 private:
  chain_plan plan_;
  std::unique_ptr<any_store> store_;
  std::unique_ptr<any_store> traced_;  ///< around store_, or null
  std::unique_ptr<runtime::pipeline> pipeline_;
};

}  // namespace terrace::runner
