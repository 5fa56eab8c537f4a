// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/runtime/pipeline.hpp>
#include <terrace/runtime/sampler.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace terrace::runner {

struct generation_request {
  std::span<std::int32_t const> prompt;
  int tokens = 64;  ///< most to generate
  runtime::sampler_options sampler;
  std::function<bool(std::int32_t)>
      is_end;  ///< ends generation, being its last token; empty: nothing does
  std::function<void(std::int32_t)> on_token;
  std::function<void(std::uint64_t)> on_prefill;  ///< prompt tokens done so far
  std::function<bool()> stop;                     ///< asked between steps; empty: never
};

struct generation {
  std::vector<std::int32_t> ids;
  std::vector<float>
      prompt_logits;  ///< [vocab], after the last prompt token; empty when stopped before
  double prefill_s = 0;
  double decode_s = 0;  ///< from the first generated token to the last
  double first_token_s = 0;
  bool stopped = false;       ///< by `stop`
  bool context_full = false;  ///< before `tokens` were generated

  [[nodiscard]] double prefill_tokens_per_s(std::size_t prompt) const noexcept {
    return prefill_s > 0 ? static_cast<double>(prompt) / prefill_s : 0;
  }
  [[nodiscard]] double decode_tokens_per_s() const noexcept {
    return decode_s > 0 ? static_cast<double>(ids.size() - 1) / decode_s : 0;
  }
};

/// Feeds the prompt to a pipeline at position 0 and generates after it.
/// Errors: what the pipeline and the sampler throw.
[[nodiscard]] generation generate(runtime::pipeline& pipeline,
                                  generation_request const& request,
                                  int prefill_chunk);

}  // namespace terrace::runner
