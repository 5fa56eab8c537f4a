// SPDX-License-Identifier: Apache-2.0
// Writes the outputs that a model gives under `exact`, in the form the golden tests read:
//   make_golden MODEL.gguf REFERENCE.json OUT.json
// Texts, chats and likelihood windows are those of REFERENCE.json, the golden file of the model it
// was made from.
#include "support/golden_file.hpp"
#include "support/running_model.hpp"

#include <terrace/tokenize/chat.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

// Longer prompts are left out and longer windows cut, so that the file stays small.
constexpr std::size_t longest_prompt = 50;
constexpr std::size_t longest_window = 96;

struct greedy_run {
  std::vector<std::int32_t> ids;
  std::vector<double> gaps;
};

double gap_of(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>{});
  return std::round((double{logits[0]} - logits[1]) * 1e6) / 1e6;
}

greedy_run run_greedy(running_model& model,
                      std::vector<float> logits,
                      std::size_t most,
                      auto const& is_end) {
  greedy_run run;
  while (run.ids.size() < most) {
    run.ids.push_back(argmax_of(logits));
    run.gaps.push_back(gap_of(logits));
    if (is_end(run.ids.back())) { break; }
    logits = model.append(run.ids.back());
  }
  return run;
}

json expected_outputs(running_model& model, std::vector<std::int32_t> const& ids) {
  std::vector<std::uint16_t> experts;
  model.pipeline().record_routing(&experts);
  auto const logits = model.logits(ids);
  model.pipeline().record_routing(nullptr);
  auto const greedy = run_greedy(model, logits, 48, [](std::int32_t) { return false; });
  json out{{"last_logits", encode_array<float>(logits)},
           {"greedy", greedy.ids},
           {"greedy_gap", greedy.gaps}};
  if (!experts.empty()) { out["router_ids"] = encode_array<std::uint16_t>(experts); }
  return out;
}

json make(running_model& model, golden_file const& reference) {
  auto const tokenizer = runner::open_tokenizer(model.catalog());
  auto const& needs = model.engine().plan().needs;
  json out{{"top_k", needs.top_k},
           {"moe_layers", std::vector<int>(static_cast<std::size_t>(needs.mixture_layers))}};
  for (auto const& prompt : reference.prompts) {
    if (prompt.ids.empty() || prompt.ids_bos.size() > longest_prompt) { continue; }
    out["prompts"].push_back({{"name", prompt.name},
                              {"text", prompt.text},
                              {"ids", prompt.ids},
                              {"ids_bos", prompt.ids_bos},
                              {"bos", expected_outputs(model, prompt.ids_bos)}});
  }
  for (auto const& chat : reference.chats) {
    auto const greedy = run_greedy(
        model, model.logits(chat.ids), 96, [&](std::int32_t id) { return tokenizer.is_end(id); });
    out["chats"].push_back(
        {{"name", chat.name},
         {"messages", chat.messages},
         {"rendered", tokenize::join(tokenize::chat_prompt(tokenizer, chat.messages))},
         {"ids", chat.ids},
         {"greedy", greedy.ids},
         {"greedy_gap", greedy.gaps},
         {"stopped", tokenizer.is_end(greedy.ids.back())}});
  }
  double mean = 0;
  for (auto const& window : reference.windows) {
    auto const ids = std::span{window.ids}.first(std::min(longest_window, window.ids.size()));
    auto const nll = model.pipeline().nll(ids);
    double sum = 0;
    for (float const one : nll) { sum += one; }
    mean += sum / static_cast<double>(nll.size()) / static_cast<double>(reference.windows.size());
    out["nll"]["windows"].push_back({{"ids", std::vector<std::int32_t>(ids.begin(), ids.end())},
                                     {"nll", encode_array<float>(nll)}});
  }
  out["nll"]["mean"] = mean;
  return out;
}

}  // namespace
}  // namespace terrace::golden

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: make_golden MODEL.gguf REFERENCE.json OUT.json\n", stderr);
    return 2;
  }
  try {
    terrace::golden::running_model model{argv[1]};
    auto const golden = terrace::golden::make(model, terrace::golden::read_golden(argv[2]));
    std::ofstream file{argv[3]};
    file << golden.dump() << "\n";
    file.close();
    return file ? 0 : 1;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "make_golden: %s\n", failure.what());
    return 1;
  }
}
