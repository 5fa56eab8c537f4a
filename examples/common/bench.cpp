// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"

#include "stopwatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace terrace::runner {
namespace {

std::vector<std::int32_t> random_ids(int count, int vocab) {
  std::mt19937 random{1};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids) { id = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab)); }
  return ids;
}

/// Seconds that one run of `item` takes.
double time_once(runtime::pipeline& pipeline, bench_item item, std::span<std::int32_t const> ids) {
  pipeline.reset();
  stopwatch watch;
  if (item.prefill) {
    static_cast<void>(pipeline.decode(ids));
  } else {
    for (auto const& id : ids) { static_cast<void>(pipeline.decode(std::span{&id, 1})); }
  }
  return watch.seconds();
}

bench_result summarise(bench_item item, std::span<double const> rates) {
  bench_result result{.item = item};
  for (double const rate : rates) { result.mean += rate / static_cast<double>(rates.size()); }
  double squares = 0;
  for (double const rate : rates) { squares += (rate - result.mean) * (rate - result.mean); }
  if (rates.size() > 1) {
    result.deviation = std::sqrt(squares / static_cast<double>(rates.size() - 1));
  }
  return result;
}

}  // namespace

int longest(std::span<bench_item const> items) {
  int most = 0;
  for (auto const& item : items) { most = std::max(most, item.tokens); }
  return most;
}

std::vector<bench_result> run_bench(runtime::pipeline& pipeline,
                                    std::span<bench_item const> items,
                                    int repetitions,
                                    std::function<bool()> const& stop) {
  std::vector<bench_result> results;
  for (auto const& item : items) {
    auto const ids = random_ids(item.tokens, pipeline.vocab_size());
    std::vector<double> rates;
    for (int run = -1; run < repetitions && !stop(); ++run) {
      double const seconds = time_once(pipeline, item, ids);
      if (run >= 0) { rates.push_back(item.tokens / std::max(seconds, 1e-9)); }
    }
    if (static_cast<int>(rates.size()) == repetitions) {
      results.push_back(summarise(item, rates));
    }
  }
  pipeline.reset();
  return results;
}

std::string bench_table(std::span<bench_result const> results, int repetitions) {
  std::string text = fmt::format("{:<10} {:>12}   {:>10}   (mean and standard deviation of {})\n",
                                 "test",
                                 "tokens/s",
                                 "deviation",
                                 repetitions);
  for (auto const& one : results) {
    auto const name = fmt::format("{}{}", one.item.prefill ? "pp" : "tg", one.item.tokens);
    text += fmt::format("{:<10} {:>12.2f} ± {:>10.2f}\n", name, one.mean, one.deviation);
  }
  return text;
}

}  // namespace terrace::runner
