// SPDX-License-Identifier: Apache-2.0
#include "inputs.hpp"

#include "bench.hpp"
#include "prompt.hpp"
#include "text_file.hpp"

#include <terrace/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace terrace::runner {
namespace {

constexpr int longest_default_window = 4096;

void check_ids(std::span<std::int32_t const> ids, int vocab) {
  for (auto const id : ids) {
    if (id >= vocab) {
      throw contract_error{
          fmt::format("token id {} is outside the model's vocabulary of {} ids", id, vocab)};
    }
  }
}

void check_length(std::string_view what, std::size_t tokens, int context) {
  if (tokens > static_cast<std::size_t>(context)) {
    throw contract_error{
        fmt::format("{} has {} tokens, more than the context of {}; raise --ctx or shorten it",
                    what,
                    tokens,
                    context)};
  }
}

}  // namespace

run_inputs read_inputs(options const& wanted, format::catalog const& catalog, int context_limit) {
  run_inputs inputs;
  auto const& prompt = wanted.prompt;
  bool const has_text = (prompt.given() && !prompt.ids) || wanted.nll_text;
  bool const has_tokenizer = catalog.kind() == format::container::safetensors ||
                             catalog.meta().contains("tokenizer.ggml.model");
  if (has_text || (prompt.ids && has_tokenizer)) {
    inputs.tokenizer.emplace(open_tokenizer(catalog));
  }
  if (prompt.given()) {
    inputs.prompt = prompt_ids(prompt, inputs.tokenizer ? &*inputs.tokenizer : nullptr);
  }
  if (wanted.nll_ids) {
    inputs.windows = parse_windows(read_text_file(*wanted.nll_ids), wanted.nll_ids->string());
  }
  if (wanted.nll_text) {
    auto const& tokenizer = *inputs.tokenizer;
    auto const ids = tokenizer.encode(read_text_file(*wanted.nll_text), /*parse_special=*/true);
    int const window =
        wanted.context > 0 ? wanted.context : std::min(context_limit, longest_default_window);
    inputs.windows = cut_windows(ids, tokenizer.add_bos() ? tokenizer.bos().value() : -1, window);
  }
  return inputs;
}

int choose_context(options const& wanted, run_inputs const& inputs, int context_limit) {
  if (wanted.context > 0) { return wanted.context; }
  auto needed = static_cast<std::size_t>(longest(wanted.bench));
  for (auto const& window : inputs.windows) { needed = std::max(needed, window.size()); }
  auto const prompt = inputs.prompt.size();
  if (prompt > 0) {
    auto const generated = prompt + static_cast<std::size_t>(wanted.tokens);
    needed =
        std::max({needed, prompt, std::min(generated, static_cast<std::size_t>(context_limit))});
  }
  return static_cast<int>(std::min<std::size_t>(needed, INT32_MAX));
}

void check_inputs(options const& wanted,
                  run_inputs const& inputs,
                  runtime::requirements const& needs) {
  check_ids(inputs.prompt, needs.vocab);
  check_length("the prompt", inputs.prompt.size(), needs.context_tokens);
  for (auto const& window : inputs.windows) {
    check_ids(window, needs.vocab);
    check_length("a window", window.size(), needs.context_tokens);
  }
  check_length(
      "the benchmark", static_cast<std::size_t>(longest(wanted.bench)), needs.context_tokens);
}

}  // namespace terrace::runner
