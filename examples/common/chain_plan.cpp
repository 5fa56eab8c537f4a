// SPDX-License-Identifier: Apache-2.0
#include "chain_plan.hpp"

#include "capacity.hpp"
#include "devices.hpp"
#include "models.hpp"
#include "placing.hpp"
#include "presets.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/units.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>
#include <terrace/tier/nvme.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace terrace::runner {
namespace {

using runtime::compute_backend;

/// Memory for copies that cannot land in place, from comfortable to least: a small cap leaves
/// little for it.
struct staging_rung {
  nvme::options home;
  device_staging device;
};
constexpr std::array<staging_rung, 4> staging_rungs{{
    {{.queue_depth = 64, .piece_bytes = mib, .staging_bytes = 16 * mib},
     {.bytes = 16 * mib, .slot_bytes = mib}},
    {{.queue_depth = 32, .piece_bytes = 256 * kib, .staging_bytes = 2 * mib},
     {.bytes = 2 * mib, .slot_bytes = 256 * kib}},
    {{.queue_depth = 16, .piece_bytes = 64 * kib, .staging_bytes = 256 * kib},
     {.bytes = 256 * kib, .slot_bytes = 64 * kib}},
    {{.queue_depth = 8, .piece_bytes = 16 * kib, .staging_bytes = 48 * kib},
     {.bytes = 48 * kib, .slot_bytes = 16 * kib}},
}};
constexpr std::uint64_t largest_staging_share = 16;  ///< at most 1/16 of the cap

/// Main memory that a chain with those options holds for staging. Without a catalog, what its home
/// is asked to hold.
std::uint64_t staging_bytes(format::catalog const* catalog,
                            chain_entry const& chain,
                            staging_rung const& how) {
  std::uint64_t bytes = catalog == nullptr ? how.home.staging_bytes
                                           : nvme{catalog->files(), how.home}.staging_bytes();
  for (auto const* tier : chain.tiers()) {
    if (tier->memory == tier_memory::device) { bytes += how.device.bytes; }
  }
  return bytes;
}

/// The level whose cap counts staging: the fastest that is main memory. Nothing where there is
/// none.
std::optional<std::size_t> staging_level(chain_entry const& chain) {
  auto const tiers = chain.tiers();
  auto const found = std::find_if(tiers.begin(), tiers.end(), [](tier_entry const* one) {
    return one->memory == tier_memory::main;
  });
  if (found == tiers.end()) { return std::nullopt; }
  return static_cast<std::size_t>(found - tiers.begin());
}

/// Slots asked for, checked; `unlimited` when the option is absent.
std::size_t expert_slots(runtime::requirements const& needs,
                         std::optional<slot_request> const& wanted) {
  if (!wanted) { return unlimited; }
  if (needs.experts == 0) {
    throw not_supported{
        "--experts has no effect: this model has no routed experts; cap its memory by bytes "
        "instead"};
  }
  auto const all = static_cast<std::size_t>(needs.all_expert_blocks());
  std::size_t const slots = wanted->slots(all);
  auto const top_k = static_cast<std::size_t>(needs.top_k);
  if (slots < top_k) {
    throw out_of_capacity{
        fmt::format(
            "--experts gives {} of {} expert slots, but a token uses {} experts of a layer at "
            "once; the smallest value that works is {}",
            slots,
            all,
            top_k,
            top_k),
        top_k,
        slots};
  }
  return std::min(slots, all);
}

void refuse_without_experts(runtime::requirements const& needs, chain_options const& wanted) {
  if (needs.experts == 0 && wanted.prefetch && *wanted.prefetch != "none") {
    throw not_supported{fmt::format(
        "--prefetch {} has no effect: it guesses experts, and this model has none; its layers "
        "are read ahead in any case",
        *wanted.prefetch)};
  }
}

void check_backend(chain_entry const& chain, runtime::pipeline_options const& pipeline) {
  bool const on_device = pipeline.backend == compute_backend::cuda;
  auto const& tier = chain.fastest();
  if (on_device ? tier.device_reads : tier.host_reads) { return; }
  throw contract_error{
      fmt::format("{} cannot compute from {}, the fastest tier of {}; choose "
                  "another chain (--list-chains) or --backend {}",
                  on_device ? "a device" : "the host",
                  tier.name,
                  chain.name,
                  on_device ? "cpu" : "cuda")};
}

/// Everything but what placement decides. `capacity` answers the size of a tier.
template <class Capacity>
chain_plan start_plan(runtime::requirements needs,
                      chain_options const& wanted,
                      runtime::pipeline_options pipeline,
                      Capacity capacity) {
  chain_plan plan;
  auto& setup = plan.setup;
  setup.chain = &find_chain(wanted.name);
  check_backend(*setup.chain, pipeline);
  setup.evict = wanted.evict.value_or(std::string{evict::any::names.front()});
  setup.prefetch = wanted.prefetch.value_or(std::string{prefetch::any::names.front()});
  setup.device = pipeline.device;
  plan.pipeline = std::move(pipeline);
  plan.pipeline.look_ahead = setup.prefetch == "gate_lookahead";
  plan.needs = std::move(needs);
  refuse_without_experts(plan.needs, wanted);
  setup.expert_slots = expert_slots(plan.needs, wanted.experts);
  for (auto const* tier : setup.chain->tiers()) {
    if (tier->memory == tier_memory::file) { continue; }
    plan.levels.push_back({.tier = tier, .capacity_bytes = capacity(*tier, plan.needs)});
  }
  if (wanted.pmem) { setup.pmem_path = wanted.pmem->path; }
  return plan;
}

/// Plans levels one by one.
class level_planner {
 public:
  level_planner(chain_plan const& plan, placing const& placed)
      : plan_{plan}, placed_{placed}, home_{plan.levels.size()} {
    for (auto const& one : placed.elsewhere) {
      level_of_[static_cast<std::uint64_t>(one.id)] = one.level;
    }
  }

  /// Whether passes read blocks from that level, and do not just refill a faster one from it.
  [[nodiscard]] bool is_read(std::size_t level) const {
    return level == 0 || std::any_of(placed_.elsewhere.begin(),
                                     placed_.elsewhere.end(),
                                     [&](auto const& one) { return one.level == level; });
  }
  [[nodiscard]] runtime::plan make(std::size_t level, std::uint64_t staging) const {
    auto const& here = plan_.levels[level];
    if (!is_read(level)) { return cache_only(here, staging); }
    runtime::plan_request request{.tier = std::string{here.tier->name},
                                  .capacity_bytes = here.capacity_bytes,
                                  .staging_bytes = staging,
                                  .on_device = here.tier->memory == tier_memory::device,
                                  .expert_slots = level > 0 || plan_.setup.expert_slots == unlimited
                                                      ? 0
                                                      : plan_.setup.expert_slots,
                                  .must_pin = placed_.pinned[level],
                                  .not_here = {},
                                  .not_kept = {}};
    if (level == 0) {
      for (auto const& one : placed_.elsewhere) {
        (one.level == home_ ? request.not_kept : request.not_here).push_back(one.id);
      }
      return make_plan(plan_.needs, request);
    }
    auto needs = plan_.needs;
    needs.state_bytes = needs.recurrent_bytes = needs.compute_bytes = 0;
    request.not_here = others(level);
    return make_plan(needs, request);
  }

  /// What a level would hold in the end if nothing ever left it.
  [[nodiscard]] std::uint64_t everything(std::size_t level) const {
    std::uint64_t const staging = plan_.levels[level].memory.staging_bytes;
    if (level > 0) {  // copies of what the faster levels hold come here too
      return staging + plan_.needs.dense_bytes() + plan_.needs.all_expert_bytes();
    }
    auto boundless = plan_;
    boundless.levels[level].capacity_bytes = std::uint64_t{1} << 62U;
    boundless.setup.expert_slots = unlimited;
    return level_planner{boundless, placed_}.make(level, staging).predicted_peak_bytes;
  }

 private:
  /// Every block of the model that is not placed in that level.
  [[nodiscard]] std::vector<block_id> others(std::size_t level) const {
    std::vector<block_id> all;
    auto const add = [&](block_id id) {
      auto const found = level_of_.find(static_cast<std::uint64_t>(id));
      if (found == level_of_.end() || found->second != level) { all.push_back(id); }
    };
    for (auto const& one : plan_.needs.distinct_dense()) { add(one.id); }
    for (auto const& step : plan_.needs.steps) {
      for (int expert = 0; step.expert_bytes > 0 && expert < plan_.needs.experts; ++expert) {
        add(expert_block(step.layer, expert_id{static_cast<std::uint32_t>(expert)}));
      }
    }
    return all;
  }
  /// Any size works, and none is more than the model.
  [[nodiscard]] runtime::plan cache_only(level_plan const& here, std::uint64_t staging) const {
    runtime::plan result;
    result.staging_bytes = result.minimum_bytes = staging;
    if (here.capacity_bytes < staging) {
      throw out_of_capacity{
          fmt::format("--{} {} ({}) is too small: staging takes {}; the smallest value that works "
                      "is {}",
                      here.tier->name,
                      here.capacity_bytes,
                      format_size(here.capacity_bytes),
                      format_size(staging),
                      staging),
          staging,
          here.capacity_bytes};
    }
    result.cache_bytes = here.capacity_bytes - staging;
    result.predicted_peak_bytes =
        staging +
        std::min(result.cache_bytes, plan_.needs.dense_bytes() + plan_.needs.all_expert_bytes());
    return result;
  }

  chain_plan const& plan_;
  placing const& placed_;
  std::size_t home_;
  std::unordered_map<std::uint64_t, std::size_t> level_of_;
};

/// A level nothing may leave must hold everything that comes to it.
void check_pinned_policy(chain_plan const& plan,
                         level_planner const& planner,
                         preset const* made_by) {
  if (plan.setup.evict != "pinned") { return; }
  bool const slots_for_all = plan.setup.expert_slots >= plan.needs.all_expert_blocks();
  for (std::size_t level = 0; level < plan.levels.size(); ++level) {
    auto const& here = plan.levels[level];
    std::uint64_t const everything = planner.everything(level);
    bool const fits = everything <= here.capacity_bytes && (level > 0 || slots_for_all);
    if (fits || !planner.is_read(level)) { continue; }
    std::uint64_t const missing = everything - std::min(everything, here.capacity_bytes);
    if (made_by != nullptr && made_by->experts == preset_experts::on_device) {
      throw out_of_capacity{
          fmt::format("--preset {} keeps everything in {}: {} of dense weights, {} of experts, {} "
                      "of state and {} to compute with make {} bytes, but it has {}, so {} bytes "
                      "are missing; use spark-a, or give it more",
                      made_by->name,
                      here.tier->name,
                      format_size(plan.needs.dense_bytes()),
                      format_size(plan.needs.all_expert_bytes()),
                      format_size(plan.needs.state_bytes),
                      format_size(here.memory.compute_bytes),
                      everything,
                      here.capacity_bytes,
                      missing),
          everything,
          here.capacity_bytes};
    }
    throw out_of_capacity{
        fmt::format(
            "--evict pinned lets nothing leave {}, so the whole model must fit: {} bytes{}, "
            "of which {} are missing; give it that or choose another policy",
            here.tier->name,
            everything,
            slots_for_all ? ""
                          : fmt::format(" and {} expert slots", plan.needs.all_expert_blocks()),
            missing),
        everything,
        here.capacity_bytes};
  }
}

/// Plans every level, with the most staging memory that leaves room for everything else. `catalog`
/// may be null.
void plan_levels(chain_plan& plan,
                 format::catalog const* catalog,
                 placing const& placed,
                 preset const* made_by) {
  auto const& chain = *plan.setup.chain;
  level_planner const planner{plan, placed};
  auto const counts = staging_level(chain);
  auto const* rung = &staging_rungs.front();
  std::uint64_t least = 0;
  std::uint64_t rest = 0;
  if (counts) {
    auto const capacity = plan.levels[*counts].capacity_bytes;
    least = staging_bytes(catalog, chain, staging_rungs.back());
    rest = planner.make(*counts, least).minimum_bytes - least;
    auto const best =
        std::find_if(staging_rungs.begin(), staging_rungs.end(), [&](staging_rung const& how) {
          std::uint64_t const bytes = staging_bytes(catalog, chain, how);
          return rest + bytes <= capacity && bytes <= capacity / largest_staging_share;
        });
    rung = best == staging_rungs.end() ? &staging_rungs.back() : &*best;
  }
  plan.setup.home = rung->home;
  plan.setup.staging = rung->device;
  std::uint64_t const staging = staging_bytes(catalog, chain, *rung);
  if (!counts) { plan.uncapped_staging_bytes = staging; }
  for (std::size_t level = 0; level < plan.levels.size(); ++level) {
    bool const here = counts == level;
    auto& one = plan.levels[level];
    one.memory = planner.make(level, here ? staging : 0);
    if (here) { one.memory.minimum_bytes = rest + least; }
    plan.setup.level_bytes.push_back(one.capacity_bytes - one.memory.staging_bytes -
                                     one.memory.compute_bytes);
  }
  auto& pinned = plan.levels.front().memory.pinned;
  for (std::size_t level = 1; level < plan.levels.size(); ++level) {
    auto const& more = plan.levels[level].memory.pinned;
    pinned.insert(pinned.end(), more.begin(), more.end());
  }
  check_pinned_policy(plan, planner, made_by);
}

/// What a level may come to hold of the machine.
std::uint64_t main_memory_peak(chain_plan const& plan) {
  std::uint64_t bytes = plan.uncapped_staging_bytes;
  for (auto const& level : plan.levels) {
    if (level.tier->memory == tier_memory::main) { bytes += level.memory.predicted_peak_bytes; }
  }
  return bytes;
}

void refuse_peak(chain_plan const& plan,
                 tier_memory memory,
                 std::string const& what,
                 std::uint64_t peak,
                 std::uint64_t usable) {
  if (peak <= usable) { return; }
  for (auto const& level : plan.levels) {
    if (level.tier->memory != memory) { continue; }
    throw out_of_capacity{
        fmt::format("the plan peaks at {} of {}, but only {} are free for it; give --{} a smaller "
                    "value ({} works)",
                    format_size(peak),
                    what,
                    format_size(usable),
                    level.tier->name,
                    level.memory.minimum_bytes),
        peak,
        usable};
  }
  throw out_of_capacity{fmt::format("{} of {} are needed beside the tiers, but only {} are free",
                                    format_size(peak),
                                    what,
                                    format_size(usable)),
                        peak,
                        usable};
}

void check_free_memory(chain_plan const& plan) {
  refuse_peak(
      plan, tier_memory::main, "main memory", main_memory_peak(plan), usable_memory_bytes());
  if (plan.pipeline.backend != compute_backend::cuda && !plan.setup.chain->needs_cuda()) { return; }
  auto const& first = plan.fastest();
  bool const in_tier = first.tier->memory == tier_memory::device;
  refuse_peak(plan,
              tier_memory::device,
              fmt::format("the memory of CUDA device {}", plan.setup.device),
              in_tier ? first.memory.predicted_peak_bytes : plan.needs.compute_bytes,
              usable_device_bytes(plan.setup.device));
}

/// For a plan in which no expert lies where the host reads it.
void settle_dispatch(chain_plan& plan, chain_options const& wanted) {
  auto& pipeline = plan.pipeline;
  if (pipeline.backend != compute_backend::cuda || pipeline.dispatch == "device") { return; }
  if (wanted.made_by != nullptr) {
    pipeline.dispatch = "device";
    return;
  }
  throw not_supported{fmt::format(
      "--dispatch {} has no effect: {}",
      pipeline.dispatch,
      plan.needs.experts == 0
          ? "this model has no routed experts; leave it out"
          : "no expert lies where the host reads it; use a chain with another tier and place "
            "experts there (--place '_exps=pinned'), or leave it out")};
}

/// The way to read files through the page cache that this machine has.
read_engine buffered_engine(format::catalog const& catalog) {
  try {
    static_cast<void>(nvme{catalog.files(), {.engine = read_engine::uring_buffered}});
    return read_engine::uring_buffered;
  } catch (not_supported const&) { return read_engine::pread_buffered; }
}

}  // namespace

chain_plan plan_chain(format::catalog const& catalog,
                      chain_options const& wanted,
                      runtime::pipeline_options pipeline) {
  auto needs = inspect_model(catalog, pipeline, counted_bytes);
  auto const device = pipeline.device;
  auto plan = start_plan(
      std::move(needs), wanted, std::move(pipeline), [&](tier_entry const& tier, auto const&) {
        return capacity_of(tier, wanted, device);
      });
  plan.rules = wanted.made_by == nullptr
                   ? wanted.place
                   : preset_rules(*wanted.made_by, plan.needs, plan.fastest().capacity_bytes);
  auto const placed = place_blocks(catalog, *plan.setup.chain, plan.rules);
  if (!check_readers(catalog, *plan.setup.chain, placed, plan.pipeline)) {
    settle_dispatch(plan, wanted);
  }
  plan.setup.placements = placed.elsewhere;
  plan_levels(plan, &catalog, placed, wanted.made_by);
  if (wanted.buffered) { plan.setup.home.engine = buffered_engine(catalog); }
  check_free_memory(plan);
  return plan;
}

chain_plan plan_on_paper(runtime::requirements needs,
                         chain_options const& wanted,
                         runtime::pipeline_options pipeline) {
  if (!wanted.place.empty()) {
    throw not_supported{"--place has no effect without weights: a config.json names no tensors"};
  }
  if (wanted.made_by != nullptr) {
    throw not_supported{fmt::format(
        "--preset {} places tensors, and a config.json names none; plan from the weights, or give "
        "--chain",
        wanted.made_by->name)};
  }
  auto const device = pipeline.device;
  auto plan = start_plan(
      std::move(needs), wanted, std::move(pipeline), [&](tier_entry const& tier, auto const& all) {
        if (tier.memory == tier_memory::persistent || wanted.cap_of(tier.name)) {
          return capacity_of(tier, wanted, device);
        }
        std::uint64_t const everything = all.state_bytes + all.compute_bytes + all.dense_bytes() +
                                         all.all_expert_bytes() +
                                         staging_rungs.front().home.staging_bytes;
        return round_up(everything, mib);
      });
  placing nothing;
  nothing.pinned.resize(plan.levels.size());
  plan_levels(plan, nullptr, nothing, nullptr);
  return plan;
}

}  // namespace terrace::runner
