// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain_plan.hpp"
#include "engine.hpp"
#include "prompt.hpp"

#include <terrace/format/catalog.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::golden {

/// How a model is run in a test; the defaults keep everything in main memory.
struct setup {
  runtime::compute_backend backend = runtime::compute_backend::cpu;
  std::string dispatch = "device";
  numerics mode = numerics::exact;
  int threads = 1;
  int context_tokens = 1536;
  int prefill_chunk = 256;
  int snapshots = 0;
  int prompt_tokens = 40;  ///< of sequences that are compared
  int decoded = 8;         ///< after the prompt, at most 8
  runner::chain_options chain{.name = "dram-nvme"};
};

/// A model bound to a chain in this process.
class running_model {
 public:
  explicit running_model(std::filesystem::path const& path, setup const& how = {})
      : catalog_{format::catalog::open(path)},
        engine_{catalog_,
                runner::plan_chain(catalog_,
                                   how.chain,
                                   {.backend = how.backend,
                                    .device = 0,
                                    .dispatch = how.dispatch,
                                    .mode = how.mode,
                                    .threads = how.threads,
                                    .context_tokens = how.context_tokens,
                                    .half_kv = how.mode == numerics::fast,
                                    .snapshots = how.snapshots,
                                    .prefill_chunk = how.prefill_chunk,
                                    .on_load = {}})} {}
  running_model(running_model const&) = delete;
  running_model& operator=(running_model const&) = delete;

  [[nodiscard]] format::catalog const& catalog() const noexcept { return catalog_; }
  [[nodiscard]] runner::engine& engine() noexcept { return engine_; }
  [[nodiscard]] runtime::pipeline& pipeline() noexcept { return engine_.pipeline(); }

  /// Logits after `ids`, from an empty sequence.
  [[nodiscard]] std::vector<float> logits(std::span<std::int32_t const> ids) {
    pipeline().reset();
    return append(ids);
  }
  /// Logits after `ids`, behind what was fed before.
  std::vector<float> append(std::span<std::int32_t const> ids) {
    auto const now = pipeline().decode(ids);
    return {now.begin(), now.end()};
  }
  std::vector<float> append(std::int32_t id) { return append(std::span{&id, 1}); }

 private:
  format::catalog catalog_;
  runner::engine engine_;
};

[[nodiscard]] inline std::int32_t argmax_of(std::span<float const> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// ||a - b|| / ||b||.
[[nodiscard]] inline double relative_distance(std::span<float const> a, std::span<float const> b) {
  if (a.size() != b.size()) { return HUGE_VAL; }
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace terrace::golden
