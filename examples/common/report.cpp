// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <terrace/core/units.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <string_view>
#include <utility>

namespace terrace::runner {
namespace {

using json = nlohmann::ordered_json;

std::string_view name_of(runtime::compute_backend backend) {
  return backend == runtime::compute_backend::cuda ? "cuda" : "cpu";
}

json plan_json(chain_plan const& plan) {
  auto const& needs = plan.needs;
  auto const& [tier, capacity_bytes, memory] = plan.fastest();
  json out{{"tier", tier->name},
           {"capacity_bytes", capacity_bytes},
           {"minimum_bytes", memory.minimum_bytes},
           {"predicted_peak_bytes", memory.predicted_peak_bytes},
           {"pinned_bytes", memory.pinned_bytes},
           {"state_bytes", memory.state_bytes},
           {"recurrent_bytes", needs.recurrent_bytes},
           {"staging_bytes", memory.staging_bytes},
           {"compute_bytes", memory.compute_bytes},
           {"cache_bytes", memory.cache_bytes},
           {"dense_bytes", needs.dense_bytes()},
           {"expert_bytes", needs.all_expert_bytes()},
           {"experts", needs.all_expert_blocks()},
           {"expert_slots", memory.expert_slots},
           {"context_tokens", needs.context_tokens},
           {"threads", plan.pipeline.threads},
           {"numerics", name_of(plan.pipeline.mode)},
           {"kv", plan.pipeline.half_kv ? "f16" : "f32"},
           {"evict", plan.setup.evict},
           {"prefetch", plan.setup.prefetch}};
  if (plan.pipeline.backend == runtime::compute_backend::cuda) {
    out["device"] = plan.setup.device;
    out["dispatch"] = plan.pipeline.dispatch;
  }
  for (auto const& level : plan.levels) {
    out["levels"].push_back({{"tier", level.tier->name},
                             {"capacity_bytes", level.capacity_bytes},
                             {"minimum_bytes", level.memory.minimum_bytes},
                             {"predicted_peak_bytes", level.memory.predicted_peak_bytes}});
    if (level.tier->memory == tier_memory::persistent) { out["pmem_bytes"] = level.capacity_bytes; }
  }
  return out;
}

void add_rates(json& plan, expected_rates const& rates) {
  plan["token_bytes"] = rates.token_bytes;
  plan["token_home_bytes"] = rates.token_home_bytes;
  if (rates.token_expert_bytes > 0) {
    for (double const hits : planned_hit_rates) {
      plan["token_home_bytes_at"].push_back(
          {{"expert_hits", hits}, {"bytes", rates.home_bytes_at(hits)}});
    }
  }
  if (rates.memory_bytes_per_s == 0) { return; }
  plan["memory_bytes_per_s"] = rates.memory_bytes_per_s;
  if (rates.home_bytes_per_s == 0) { return; }
  plan["home_bytes_per_s"] = rates.home_bytes_per_s;
  plan["most_tokens_per_s"] = rates.tokens_per_s();
}

json tier_json(observe::tier_counters const& tier) {
  return {{"name", tier.name},
          {"capacity_bytes", tier.capacity_bytes},
          {"peak_bytes", tier.peak_bytes},
          {"hits", tier.hits},
          {"misses", tier.misses},
          {"bytes_in", tier.bytes_in},
          {"bytes_out", tier.bytes_out},
          {"evictions", tier.evictions},
          {"stall_s", tier.stall_s()}};
}

/// Who computes, for people.
std::string computing(chain_plan const& plan) {
  if (plan.pipeline.backend == runtime::compute_backend::cpu) { return "computed on the host"; }
  return fmt::format(
      "computed on CUDA device {} (dispatch {})", plan.setup.device, plan.pipeline.dispatch);
}

json nll_json(likelihood const& nll) {
  json windows = json::array();
  for (auto const& window : nll.windows) {
    windows.push_back({{"tokens", window.tokens}, {"mean", window.mean}});
  }
  return {{"mean", nll.mean}, {"windows", std::move(windows)}};
}

}  // namespace

std::string to_json(run_report const& report, chain_plan const& plan, expected_rates const* rates) {
  json out{{"model", report.model},
           {"backend", name_of(plan.pipeline.backend)},
           {"chain", report.chain},
           {"prompt_ids", report.prompt_ids},
           {"ids", report.ids},
           {"text", report.text},
           {"pp_tokens_per_s", report.prefill_tokens_per_s},
           {"tg_tokens_per_s", report.decode_tokens_per_s},
           {"load_s", report.load_s},
           {"ttft_s", report.first_token_s},
           {"plan", plan_json(plan)},
           {"tiers", json::array()}};
  if (rates != nullptr) { add_rates(out["plan"], *rates); }
  for (auto const& tier : report.tiers) { out["tiers"].push_back(tier_json(tier)); }
  if (report.nll) { out["nll"] = nll_json(*report.nll); }
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string describe(chain_plan const& plan) {
  auto const& needs = plan.needs;
  auto const& [tier, capacity_bytes, memory] = plan.fastest();
  std::string text = fmt::format("chain {}, {}, {} numerics, {} threads, context of {} tokens\n\n",
                                 plan.setup.chain->name,
                                 computing(plan),
                                 name_of(plan.pipeline.mode),
                                 plan.pipeline.threads,
                                 needs.context_tokens);
  auto const row = [&text](std::string_view name, std::uint64_t bytes, std::string const& note) {
    text += fmt::format("{:<18} {:>12}  {}\n", name, format_size(bytes), note);
  };
  auto const streamed = needs.dense_bytes() - std::min(needs.dense_bytes(), memory.pinned_bytes);
  text += fmt::format("{} ({})\n", tier->name, plan.setup.evict);
  row("  capacity", capacity_bytes, "");
  row("  smallest", memory.minimum_bytes, "that works");
  row("  pinned", memory.pinned_bytes, streamed == 0 ? "all dense weights" : "dense weights");
  row("  sequence state",
      memory.state_bytes,
      std::string{plan.pipeline.half_kv ? "f16" : "f32"} +
          (needs.recurrent_bytes == 0 ? ""
                                      : fmt::format(", {} of it recurrent, in f32 and of one size",
                                                    format_size(needs.recurrent_bytes))));
  row("  staging", memory.staging_bytes, "for reads that cannot land in place");
  if (memory.compute_bytes > 0) { row("  kernels", memory.compute_bytes, "activations, logits"); }
  row("  cache",
      memory.cache_bytes,
      needs.experts > 0 ? fmt::format("{} expert slots", memory.expert_slots) : "streamed layers");
  row("  predicted peak", memory.predicted_peak_bytes, "");
  for (std::size_t level = 1; level < plan.levels.size(); ++level) {
    auto const& lower = plan.levels[level];
    bool const stored = lower.tier->memory == tier_memory::persistent;
    text += fmt::format("{}\n", lower.tier->name);
    row("  capacity", lower.capacity_bytes, stored ? plan.setup.pmem_path.string() : "");
    if (lower.memory.staging_bytes > 0) {
      row("  staging", lower.memory.staging_bytes, "for reads that cannot land in place");
    }
    row("  predicted peak", lower.memory.predicted_peak_bytes, "");
  }
  if (plan.uncapped_staging_bytes > 0) {
    text += "main memory\n";
    row("  staging", plan.uncapped_staging_bytes, "for reads that cannot land in place");
  }
  text += "nvme\n";
  if (needs.experts > 0) {
    row("  experts",
        needs.all_expert_bytes(),
        fmt::format("{} in {} layers, {} of {} for a token",
                    needs.all_expert_blocks(),
                    needs.mixture_layers,
                    needs.top_k,
                    needs.experts));
  }
  row("  dense weights",
      needs.dense_bytes(),
      streamed == 0 ? "" : fmt::format("{} are read for each token", format_size(streamed)));
  return text;
}

std::string summarise(chain_plan const& plan) {
  auto const& [tier, capacity_bytes, memory] = plan.fastest();
  return fmt::format(
      "plan: {} peaks at {} of {} ({} pinned, {} state, {} staging); chain {}, {}, evict {}, "
      "prefetch {}",
      tier->name,
      format_size(memory.predicted_peak_bytes),
      format_size(capacity_bytes),
      format_size(memory.pinned_bytes),
      format_size(memory.state_bytes),
      format_size(memory.staging_bytes),
      plan.setup.chain->name,
      computing(plan),
      plan.setup.evict,
      plan.setup.prefetch);
}

}  // namespace terrace::runner
