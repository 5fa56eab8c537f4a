// SPDX-License-Identifier: Apache-2.0
#include "generation.hpp"

#include "stopwatch.hpp"

#include <algorithm>

namespace terrace::runner {
namespace {

bool asked_to_stop(generation_request const& request) { return request.stop && request.stop(); }

/// Feeds the prompt in the pipeline's own chunks, so that a long one can be watched and stopped.
std::span<float const> feed_prompt(runtime::pipeline& pipeline,
                                   generation_request const& request,
                                   std::size_t chunk,
                                   generation& result) {
  std::span<float const> logits;
  for (std::size_t done = 0; done < request.prompt.size();) {
    if (asked_to_stop(request)) {
      result.stopped = true;
      return {};
    }
    auto const part = request.prompt.subspan(done, std::min(chunk, request.prompt.size() - done));
    logits = pipeline.decode(part);
    done += part.size();
    if (request.on_prefill) { request.on_prefill(done); }
  }
  return logits;
}

}  // namespace

generation generate(runtime::pipeline& pipeline,
                    generation_request const& request,
                    int prefill_chunk) {
  generation result;
  runtime::sampler sampler{request.sampler};
  stopwatch since_start;
  auto logits =
      feed_prompt(pipeline, request, static_cast<std::size_t>(std::max(prefill_chunk, 1)), result);
  result.prefill_s = since_start.seconds();
  if (result.stopped) { return result; }
  result.prompt_logits.assign(logits.begin(), logits.end());

  stopwatch since_first;
  while (result.ids.size() < static_cast<std::size_t>(request.tokens)) {
    auto const id = sampler.sample(logits, pipeline.position());
    result.ids.push_back(id);
    if (result.ids.size() == 1) {
      result.first_token_s = since_start.seconds();
      since_first = {};
    } else {
      result.decode_s = since_first.seconds();
    }
    if (request.on_token) { request.on_token(id); }
    if (request.is_end && request.is_end(id)) { break; }
    if (result.ids.size() == static_cast<std::size_t>(request.tokens)) { break; }
    result.stopped = asked_to_stop(request);
    result.context_full = pipeline.position() >= pipeline.context_tokens();
    if (result.stopped || result.context_full) { break; }
    logits = pipeline.decode(std::span{&id, 1});
  }
  return result;
}

}  // namespace terrace::runner
