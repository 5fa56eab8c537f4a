// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <terrace/runtime/pipeline.hpp>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace terrace::runner {

/// Tokens per second of one kind of work over all repetitions.
struct bench_result {
  bench_item item;
  double mean = 0;
  double deviation = 0;  ///< of the sample; 0 for one repetition
};

/// Longest sequence that `items` need.
[[nodiscard]] int longest(std::span<bench_item const> items);

/// Runs each item once to warm up and then `repetitions` times, each from an empty sequence, on ids
/// that depend on nothing but the vocabulary. `stop` is asked between repetitions; items it cuts
/// off are left out.
[[nodiscard]] std::vector<bench_result> run_bench(runtime::pipeline& pipeline,
                                                  std::span<bench_item const> items,
                                                  int repetitions,
                                                  std::function<bool()> const& stop);

/// A table, one line per item.
[[nodiscard]] std::string bench_table(std::span<bench_result const> results, int repetitions);

}  // namespace terrace::runner
