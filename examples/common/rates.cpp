// SPDX-License-Identifier: Apache-2.0
#include "rates.hpp"

#include "stopwatch.hpp"

#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

namespace terrace::runner {
namespace {

/// Bytes per second at which the model's files are read in long requests, over at most 64 MiB of
/// them.
double home_rate(format::catalog const& catalog, nvme::options const& how) {
  nvme home{catalog.files(), how};
  shim::anonymous_memory const buffer{64 * mib};
  std::vector<file_read> work;
  std::size_t used = 0;
  for (std::uint32_t file = 0; file < catalog.files().size() && used < buffer.size(); ++file) {
    auto const length =
        std::min<std::uint64_t>(home.file_bytes(file_id{file}), buffer.size() - used);
    work.push_back({.from = {.file = file_id{file}, .offset = 0, .bytes = length},
                    .to = buffer.data() + used});
    used += round_up(length, 4096);
  }
  stopwatch watch;
  home.read(work).wait();
  return static_cast<double>(used) / watch.seconds();
}

/// Dense weights a token is computed with: all but the embedding, of which it takes one row, unless
/// that is the head too.
std::uint64_t dense_token_bytes(runtime::requirements const& needs) {
  auto const& embedding = needs.steps.front().dense.front();
  auto const& head = needs.steps.back().dense;
  bool const tied = std::any_of(
      head.begin(), head.end(), [&](auto const& one) { return one.id == embedding.id; });
  return needs.dense_bytes() - (tied ? 0 : embedding.bytes);
}

std::string rate(double bytes_per_s) {
  return format_size(static_cast<std::uint64_t>(bytes_per_s)) + "/s";
}

/// What hit rates of experts leave to read, and what this machine makes of it.
std::string describe_hits(expected_rates const& rates) {
  std::string text = "experts found in memory    nvme a token";
  bool const drive_known = rates.home_bytes_per_s > 0;
  bool const memory_known = rates.memory_bytes_per_s > 0;
  if (memory_known) { text += drive_known ? "    at most" : "    nvme, to keep up with memory"; }
  text += "\n";
  for (double const hits : planned_hit_rates) {
    auto const bytes = rates.home_bytes_at(hits);
    text += fmt::format("{:>23}    {:>12}",
                        hits == 0 ? std::string{"none, cold"} : fmt::format("{:.0f} %", 100 * hits),
                        format_size(bytes));
    if (drive_known && memory_known) {
      text += fmt::format("    {:.2f} tokens/s", rates.tokens_per_s(bytes));
    } else if (memory_known) {
      text += "    " + rate(static_cast<double>(bytes) / static_cast<double>(rates.token_bytes) *
                            rates.memory_bytes_per_s);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

double measure_memory_rate(int threads) {
  constexpr std::size_t part = 32 * mib / sizeof(std::uint64_t);
  std::vector<std::vector<std::uint64_t>> parts(static_cast<std::size_t>(threads),
                                                std::vector<std::uint64_t>(part, 1));
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    stopwatch watch;
    std::vector<std::jthread> team;
    for (auto const& own : parts) {
      team.emplace_back(
          [&own, &sink] { sink += std::accumulate(own.begin(), own.end(), std::uint64_t{0}); });
    }
    team.clear();
    best = std::max(best,
                    static_cast<double>(threads * part * sizeof(std::uint64_t)) / watch.seconds());
  }
  return best;
}

double expected_rates::tokens_per_s(std::uint64_t home_bytes) const noexcept {
  if (memory_bytes_per_s <= 0 || home_bytes_per_s <= 0) { return 0; }
  double const seconds = std::max(static_cast<double>(token_bytes) / memory_bytes_per_s,
                                  static_cast<double>(home_bytes) / home_bytes_per_s);
  return seconds > 0 ? 1 / seconds : 0;
}
double expected_rates::tokens_per_s() const noexcept { return tokens_per_s(token_home_bytes); }

std::uint64_t expected_rates::home_bytes_at(double expert_hits) const noexcept {
  return streamed_bytes +
         static_cast<std::uint64_t>(static_cast<double>(token_expert_bytes) * (1 - expert_hits));
}

expected_rates count_token_bytes(runtime::requirements const& needs, runtime::plan const& memory) {
  std::uint64_t experts = 0;
  for (auto const& step : needs.steps) {
    experts += step.expert_bytes * static_cast<std::uint64_t>(needs.top_k);
  }
  std::uint64_t const streamed =
      needs.dense_bytes() - std::min(needs.dense_bytes(), memory.pinned_bytes);
  double const all = static_cast<double>(std::max<std::uint64_t>(needs.all_expert_blocks(), 1));
  double const missed =
      static_cast<double>(experts) * (1 - static_cast<double>(memory.expert_slots) / all);
  return {.token_bytes = dense_token_bytes(needs) + experts,
          .token_home_bytes = streamed + static_cast<std::uint64_t>(std::max(missed, 0.0)),
          .token_expert_bytes = experts,
          .streamed_bytes = streamed};
}

expected_rates measure_rates(format::catalog const& catalog, chain_plan const& plan) {
  auto rates = count_token_bytes(plan.needs, plan.fastest().memory);
  rates.memory_bytes_per_s = measure_memory_rate(plan.pipeline.threads);
  rates.home_bytes_per_s = home_rate(catalog, plan.setup.home);
  return rates;
}

std::string describe(expected_rates const& rates) {
  auto text = fmt::format(
      "a token reads {} of weights, {} of them from nvme if experts are chosen evenly\n",
      format_size(rates.token_bytes),
      format_size(rates.token_home_bytes));
  if (rates.tokens_per_s() > 0) {
    text += fmt::format("main memory reads {}, the model file {}: at most {:.1f} tokens/s\n",
                        rate(rates.memory_bytes_per_s),
                        rate(rates.home_bytes_per_s),
                        rates.tokens_per_s());
  } else if (rates.memory_bytes_per_s > 0) {
    text += fmt::format("main memory reads {}: at most {:.2f} tokens/s\n",
                        rate(rates.memory_bytes_per_s),
                        rates.memory_bytes_per_s /
                            static_cast<double>(std::max<std::uint64_t>(rates.token_bytes, 1)));
  }
  return rates.token_expert_bytes > 0 ? text + describe_hits(rates) : text;
}

}  // namespace terrace::runner
