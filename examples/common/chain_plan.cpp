// SPDX-License-Identifier: Apache-2.0
#include "chain_plan.hpp"

#include "machine.hpp"
#include "models.hpp"

#include <terrace/core/units.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/placement/rules.hpp>
#include <terrace/prefetch/any.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/pmem.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace terrace::runner {
namespace {

/// Memory for reads that cannot land in place, from comfortable to least: a small cap leaves little
/// for it.
constexpr std::array<nvme::options, 4> staging_rungs{{
    {.queue_depth = 64, .piece_bytes = mib, .staging_bytes = 16 * mib},
    {.queue_depth = 32, .piece_bytes = 256 * kib, .staging_bytes = 2 * mib},
    {.queue_depth = 16, .piece_bytes = 64 * kib, .staging_bytes = 256 * kib},
    {.queue_depth = 8, .piece_bytes = 16 * kib, .staging_bytes = 48 * kib},
}};
constexpr std::uint64_t largest_staging_share = 16;  ///< at most 1/16 of the cap

/// What a home over the catalog's files will hold for staging; without a catalog, what it is asked
/// to hold.
std::uint64_t staging_bytes(format::catalog const* catalog, nvme::options const& how) {
  return catalog == nullptr ? how.staging_bytes : nvme{catalog->files(), how}.staging_bytes();
}

/// Where the rules put blocks that do not live in the fastest tier, and what they pin.
struct placing {
  std::vector<block_placement> elsewhere;
  std::vector<block_id> pinned;            ///< in the fastest tier
  std::vector<block_id> pinned_elsewhere;  ///< in a slower one
};

placing apply_rules(format::catalog const& catalog,
                    chain_entry const& chain,
                    std::vector<std::string> const& texts) {
  placing result;
  if (texts.empty()) { return result; }
  auto const tiers = chain.tiers();
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
          chain.fastest())};
    }
    if (level > 0) { result.elsewhere.push_back({.id = block.id, .level = level}); }
    if (placed->pin) { (level == 0 ? result.pinned : result.pinned_elsewhere).push_back(block.id); }
  }
  if (auto const unused = rules.unused(); !unused.empty()) {
    throw contract_error{fmt::format(
        "--place '{}' matched no tensor that an earlier rule had left; correct it or leave "
        "it out",
        unused.front())};
  }
  return result;
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

/// A level nothing may leave must hold everything.
void check_pinned_policy(chain_plan const& plan) {
  if (plan.setup.evict != "pinned") { return; }
  auto const& needs = plan.needs;
  std::uint64_t const everything = plan.memory.state_bytes + plan.memory.staging_bytes +
                                   needs.dense_bytes() + needs.all_expert_bytes();
  bool const slots_for_all = plan.setup.expert_slots >= needs.all_expert_blocks();
  if (everything <= plan.capacity_bytes && slots_for_all) { return; }
  throw out_of_capacity{
      fmt::format(
          "--evict pinned lets nothing leave {}, so the whole model must fit: {} bytes{}; give it "
          "that or "
          "choose another policy",
          plan.setup.chain->fastest(),
          everything,
          slots_for_all ? "" : fmt::format(" and {} expert slots", needs.all_expert_blocks())),
      everything,
      plan.capacity_bytes};
}

/// What --pmem gives: a size, a share of what the file system and the file itself offer, or the
/// whole file or device.
std::uint64_t pmem_bytes(sized_path const& where) {
  std::uint64_t const existing = stored_bytes(where.path);
  constexpr std::uint64_t header = 4096;  // the tier marks its file in the first page
  if (!where.size) {
    if (existing > header) { return existing - header; }
    throw contract_error{fmt::format(
        "--pmem {}: there is no such file yet, so its size must be given, as in {}:1GiB",
        where.path.string(),
        where.path.string())};
  }
  if (!where.size->is_share()) { return where.size->bytes(0); }
  auto const folder =
      where.path.has_parent_path() ? where.path.parent_path() : std::filesystem::path{"."};
  std::error_code failed;
  auto const space = std::filesystem::space(folder, failed);
  std::uint64_t const room = failed ? 0 : space.available;
  return where.size->bytes(existing + room - std::min(existing + room, header));
}

void size_tiers(chain_plan& plan, chain_options const& wanted) {
  auto const& chain = *plan.setup.chain;
  if (chain.has_pmem) {
    plan.setup.pmem_path = wanted.pmem->path;
    plan.setup.pmem_bytes = pmem_bytes(*wanted.pmem);
  }
  plan.capacity_bytes = chain.has_dram
                            ? wanted.dram.value_or(size_request::all()).bytes(usable_memory_bytes())
                            : plan.setup.pmem_bytes;
}

/// Everything but what placement decides.
chain_plan start_plan(runtime::requirements needs,
                      chain_options const& wanted,
                      runtime::pipeline_options pipeline) {
  chain_plan plan;
  plan.setup.chain = &find_chain(wanted.name);
  plan.setup.evict = wanted.evict.value_or(std::string{evict::any::names.front()});
  plan.setup.prefetch = wanted.prefetch.value_or(std::string{prefetch::any::names.front()});
  plan.pipeline = std::move(pipeline);
  plan.pipeline.look_ahead = plan.setup.prefetch == "gate_lookahead";
  plan.needs = std::move(needs);
  refuse_without_experts(plan.needs, wanted);
  plan.setup.expert_slots = expert_slots(plan.needs, wanted.experts);
  size_tiers(plan, wanted);
  return plan;
}

runtime::plan_request make_request(chain_plan const& plan, placing const& placed) {
  runtime::plan_request request{
      .tier = std::string{plan.setup.chain->fastest()},
      .capacity_bytes = plan.capacity_bytes,
      .staging_bytes = 0,
      .expert_slots = plan.setup.expert_slots == unlimited ? 0 : plan.setup.expert_slots,
      .must_pin = placed.pinned,
      .not_here = {},
      .not_kept = {}};
  std::size_t const home_level = plan.setup.chain->tiers().size() - 1;
  for (auto const& one : placed.elsewhere) {
    (one.level == home_level ? request.not_kept : request.not_here).push_back(one.id);
  }
  return request;
}

/// Plans the fastest tier with the most staging memory that leaves room for everything else.
/// `catalog` may be null.
void choose_memory(chain_plan& plan, format::catalog const* catalog, placing const& placed) {
  bool const staging_counts = plan.setup.chain->has_dram;  // it is main memory
  auto const staging = [&](nvme::options const& how) {
    return staging_counts ? staging_bytes(catalog, how) : 0;
  };
  auto const& least = staging_rungs.back();
  auto request = make_request(plan, placed);
  request.staging_bytes = staging(least);
  std::uint64_t const rest = make_plan(plan.needs, request).minimum_bytes - request.staging_bytes;
  auto const fits = [&](nvme::options const& how) {
    std::uint64_t const bytes = staging(how);
    return rest + bytes <= plan.capacity_bytes &&
           bytes <= plan.capacity_bytes / largest_staging_share;
  };
  auto const best = std::find_if(staging_rungs.begin(), staging_rungs.end(), fits);
  plan.setup.home = best == staging_rungs.end() ? least : *best;
  request.staging_bytes = staging(plan.setup.home);
  plan.memory = make_plan(plan.needs, request);
  plan.memory.minimum_bytes = rest + staging(least);
  plan.memory.pinned.insert(
      plan.memory.pinned.end(), placed.pinned_elsewhere.begin(), placed.pinned_elsewhere.end());
  plan.setup.dram_bytes = plan.capacity_bytes - plan.memory.staging_bytes;
  check_pinned_policy(plan);
}

void check_free_memory(chain_plan const& plan) {
  std::uint64_t const usable = usable_memory_bytes();
  if (!plan.setup.chain->has_dram || plan.memory.predicted_peak_bytes <= usable) { return; }
  throw out_of_capacity{fmt::format("the plan peaks at {} of main memory, but only {} are free for "
                                    "it; give --dram a smaller value ({} "
                                    "works)",
                                    format_size(plan.memory.predicted_peak_bytes),
                                    format_size(usable),
                                    plan.memory.minimum_bytes),
                        plan.memory.predicted_peak_bytes,
                        usable};
}

}  // namespace

std::uint64_t usable_memory_bytes() {
  std::uint64_t const free = free_memory_bytes();
  return free - std::min(free / 8, 256 * mib);
}

std::uint64_t counted_bytes(std::uint64_t bytes) {
#if defined(TERRACE_HAS_PMEM2)
  static_assert(dram::traits.granularity == pmem::traits.granularity);
#endif
  return round_up(std::max<std::uint64_t>(bytes, 1), dram::traits.granularity);
}

chain_plan plan_chain(format::catalog const& catalog,
                      chain_options const& wanted,
                      runtime::pipeline_options pipeline) {
  auto needs = inspect_model(catalog, pipeline, counted_bytes);
  auto plan = start_plan(std::move(needs), wanted, std::move(pipeline));
  auto const placed = apply_rules(catalog, *plan.setup.chain, wanted.place);
  plan.setup.placements = placed.elsewhere;
  choose_memory(plan, &catalog, placed);
  check_free_memory(plan);
  return plan;
}

chain_plan plan_on_paper(runtime::requirements needs,
                         chain_options const& wanted,
                         runtime::pipeline_options pipeline) {
  if (!wanted.place.empty()) {
    throw not_supported{"--place has no effect without weights: a config.json names no tensors"};
  }
  auto plan = start_plan(std::move(needs), wanted, std::move(pipeline));
  if (plan.setup.chain->has_dram && !wanted.dram) {
    std::uint64_t const everything = plan.needs.state_bytes + plan.needs.dense_bytes() +
                                     plan.needs.all_expert_bytes() +
                                     staging_rungs.front().staging_bytes;
    plan.capacity_bytes = round_up(everything, mib);
  }
  choose_memory(plan, nullptr, {});
  return plan;
}

}  // namespace terrace::runner
