// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include "bench.hpp"
#include "engine.hpp"
#include "family.hpp"
#include "generation.hpp"
#include "interrupt.hpp"
#include "likelihood.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "paper_model.hpp"
#include "prompt.hpp"
#include "rates.hpp"
#include "report.hpp"
#include "stopwatch.hpp"
#include "text_file.hpp"

#include <terrace/format/model_config.hpp>
#include <terrace/observe/progress.hpp>
#include <terrace/observe/report.hpp>
#include <terrace/observe/routing_trace.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::runner {
namespace {

void print(std::FILE* stream, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    int const code = errno;
    throw io_error{std::string{"the output could not be written: "} + std::strerror(code), code};
  }
}

/// Files that are asked for, opened before any work is done so that a wrong path costs nothing.
struct outputs {
  explicit outputs(output_options const& wanted) {
    if (wanted.json && *wanted.json != "-") { json.emplace(*wanted.json); }
    if (wanted.logits) { logits.emplace(*wanted.logits); }
    if (wanted.routing) { routing.emplace(*wanted.routing); }
    if (wanted.trace) { trace = std::make_unique<observe::trace_writer>(wanted.trace->string()); }
  }
  std::optional<output_file> json, logits, routing;
  std::unique_ptr<observe::trace_writer> trace;
};

/// One run of one model.
class session {
 public:
  session(std::string_view program, options const& wanted) : wanted_{wanted}, program_{program} {}

  void run() {
    outputs files{wanted_.output};
    if (is_bare_config(wanted_.model)) { return plan_config(files); }
    auto const catalog = format::catalog::open(wanted_.model);
    require_family(catalog.files().front().string(), catalog.architecture(), program_);
    read_inputs(catalog);
    auto const plan = plan_chain(catalog, wanted_.chain, pipeline_options(catalog.meta()));
    check_request(plan);
    if (wanted_.plan_only) { return print_plan(plan, measure_rates(catalog, plan), "", files); }
    print(stderr, summarise(plan) + "\n");
    engine machine = load(catalog, plan, files);
    work(machine, files);
    report_.tiers = machine.counters();
    print(stderr, observe::report(report_.tiers));
    finish(plan, nullptr, files);
  }

 private:
  [[nodiscard]] bool json_on_stdout() const { return wanted_.output.json == "-"; }

  void plan_config(outputs& files) {
    if (!wanted_.plan_only) {
      throw contract_error{wanted_.model.string() +
                           " holds no weights; only --plan works without them"};
    }
    if (wanted_.prompt.given() && !wanted_.prompt.ids) {
      throw contract_error{
          "a text has no effect on the plan of a config.json, which has no tokenizer; give --ctx"};
    }
    prompt_ = wanted_.prompt.ids.value_or(std::vector<std::int32_t>{});
    auto const meta = format::read_model_config(
        wanted_.model.parent_path().empty() ? "." : wanted_.model.parent_path());
    require_family(wanted_.model.string(), meta.get_string("general.architecture"), program_);
    auto const options = pipeline_options(meta);
    auto const model = read_paper_model(wanted_.model, options, counted_bytes);
    auto const plan = plan_on_paper(model.needs, wanted_.chain, options);
    check_request(plan);
    print_plan(plan, count_token_bytes(plan.needs, plan.memory), describe(model), files);
  }
  void print_plan(chain_plan const& plan,
                  expected_rates const& rates,
                  std::string const& heading,
                  outputs& files) {
    if (!json_on_stdout()) { print(stdout, heading + describe(plan) + describe(rates)); }
    finish(plan, &rates, files);
  }

  /// Tokenizer, prompt and windows: everything whose length decides the context.
  void read_inputs(format::catalog const& catalog) {
    auto const& prompt = wanted_.prompt;
    bool const text = prompt.given() && !prompt.ids;
    bool const named = catalog.kind() == format::container::safetensors ||
                       catalog.meta().contains("tokenizer.ggml.model");
    if (text || wanted_.nll_text || (prompt.ids && named)) {
      tokenizer_.emplace(open_tokenizer(catalog));
    }
    if (prompt.given()) { prompt_ = prompt_ids(prompt, tokenizer_ ? &*tokenizer_ : nullptr); }
    if (wanted_.nll_ids) {
      windows_ = parse_windows(read_text_file(*wanted_.nll_ids), wanted_.nll_ids->string());
    }
  }

  [[nodiscard]] runtime::pipeline_options pipeline_options(metadata const& meta) {
    int const limit = meta.get_count(meta.get_string("general.architecture") + ".context_length");
    if (wanted_.nll_text) {
      cut_text(wanted_.context > 0 ? wanted_.context : std::min(limit, 4096));
    }
    bool const exact = wanted_.mode == numerics::exact;
    return {.mode = wanted_.mode,
            .threads = wanted_.threads > 0 ? wanted_.threads : usable_processors(),
            .context_tokens = context_tokens(limit),
            .half_kv = wanted_.half_kv.value_or(!exact),
            .on_load = {}};
  }
  void cut_text(int window) {
    auto const ids = tokenizer_->encode(read_text_file(*wanted_.nll_text), /*parse_special=*/true);
    windows_ = cut_windows(ids, tokenizer_->add_bos() ? tokenizer_->bos().value() : -1, window);
  }
  /// What --ctx says, or the longest sequence of this run within the model's limit.
  [[nodiscard]] int context_tokens(int limit) const {
    if (wanted_.context > 0) { return wanted_.context; }
    std::size_t needed = static_cast<std::size_t>(longest(wanted_.bench));
    for (auto const& window : windows_) { needed = std::max(needed, window.size()); }
    if (!prompt_.empty()) {
      needed = std::max(needed,
                        std::min(prompt_.size() + static_cast<std::size_t>(wanted_.tokens),
                                 std::max(prompt_.size(), static_cast<std::size_t>(limit))));
    }
    return static_cast<int>(std::min<std::size_t>(needed, INT32_MAX));  // 0: the library's default
  }

  void check_request(chain_plan const& plan) const {
    if (wanted_.output.routing && plan.needs.experts == 0) {
      throw not_supported{"--routing has no effect: this model has no routed experts"};
    }
    check_ids(prompt_, plan.needs.vocab);
    for (auto const& window : windows_) { check_ids(window, plan.needs.vocab); }
    auto const context = static_cast<std::size_t>(plan.needs.context_tokens);
    if (prompt_.size() > context) {
      throw contract_error{fmt::format(
          "the prompt has {} tokens, more than the context of {}; raise --ctx or shorten it",
          prompt_.size(),
          context)};
    }
    for (auto const& window : windows_) {
      if (window.size() > context) {
        throw contract_error{fmt::format(
            "a window has {} tokens, more than the context of {}; raise --ctx or cut it",
            window.size(),
            context)};
      }
    }
  }

  static void check_ids(std::span<std::int32_t const> ids, int vocab) {
    for (auto const id : ids) {
      if (id >= vocab) {
        throw contract_error{
            fmt::format("token id {} is outside the model's vocabulary of {} ids", id, vocab)};
      }
    }
  }

  engine load(format::catalog const& catalog, chain_plan const& plan, outputs& files) {
    observe::progress progress{stderr, "loading"};
    auto const start = files.trace ? files.trace->now_ns() : 0;
    engine machine{catalog, plan, files.trace.get(), [&](std::uint64_t done, std::uint64_t total) {
                     progress.bytes(done, total);
                   }};
    report_.load_s = since_start_.seconds();
    mark(files, "load", start, plan.memory.pinned.size());
    return machine;
  }

  void work(engine& machine, outputs& files) {
    interrupt_guard interrupt;
    std::vector<std::uint16_t> experts;
    if (files.routing) { machine.pipeline().record_routing(&experts); }
    if (!wanted_.bench.empty()) { bench(machine, interrupt); }
    if (!windows_.empty()) { measure(machine); }
    if (!prompt_.empty()) { speak(machine, interrupt, files); }
    machine.pipeline().record_routing(nullptr);
    if (files.routing) { write_routing(machine.plan().needs, std::move(experts), *files.routing); }
  }

  void bench(engine& machine, interrupt_guard const& interrupt) {
    auto const results = run_bench(machine.pipeline(), wanted_.bench, wanted_.repetitions, [&] {
      return interrupt.requested();
    });
    for (auto const& one : results) {
      auto& rate = one.item.prefill ? report_.prefill_tokens_per_s : report_.decode_tokens_per_s;
      if (rate == 0) { rate = one.mean; }
    }
    print(json_on_stdout() ? stderr : stdout, bench_table(results, wanted_.repetitions));
  }

  void measure(engine& machine) {
    observe::progress progress{stderr, "likelihood"};
    report_.nll = measure_likelihood(
        machine.pipeline(), windows_, [&](std::uint64_t done) { progress.tokens(done); });
    progress.finish();
    for (auto const& window : windows_) { fed_.insert(fed_.end(), window.begin(), window.end()); }
    machine.pipeline().reset();
    auto const line = fmt::format(
        "nll: mean {:.6f} over {} windows\n", report_.nll->mean, report_.nll->windows.size());
    print(json_on_stdout() ? stderr : stdout, line);
  }

  void speak(engine& machine, interrupt_guard const& interrupt, outputs& files) {
    observe::progress progress{stderr, "prompt"};
    tokenize::utf8_stream bytes;
    auto const show = [&](std::string const& text) {
      report_.text += text;
      if (!json_on_stdout()) { print(stdout, text); }
    };
    std::uint64_t step = files.trace ? files.trace->now_ns() : 0;
    auto const step_done = [&](char const* name, std::uint64_t tokens) {
      step = mark(files, name, step, tokens);
    };
    generation_request const request{.prompt = prompt_,
                                     .tokens = wanted_.tokens,
                                     .sampler = wanted_.sampler,
                                     .is_end =
                                         [&](std::int32_t id) {
                                           return !wanted_.ignore_eos && tokenizer_ &&
                                                  tokenizer_->is_end(id);
                                         },
                                     .on_token =
                                         [&](std::int32_t id) {
                                           progress.finish();
                                           if (tokenizer_) {
                                             show(bytes.push(tokenizer_->visible_piece(id)));
                                           }
                                           step_done("token", 1);
                                         },
                                     .on_prefill =
                                         [&](std::uint64_t done) {
                                           progress.tokens(done);
                                           step_done("prompt", done);
                                         },
                                     .stop = [&] { return interrupt.requested(); }};
    auto result = generate(machine.pipeline(), request, machine.plan().pipeline.prefill_chunk);
    progress.finish();
    show(bytes.finish());
    if (!json_on_stdout()) { print(stdout, "\n"); }
    if (result.stopped) { print(stderr, "stopped by Ctrl-C\n"); }
    if (result.context_full) {
      print(stderr,
            fmt::format("the context of {} tokens is full; raise --ctx to go on\n",
                        machine.pipeline().context_tokens()));
    }
    keep(machine, std::move(result), files);
  }

  void keep(engine& machine, generation result, outputs& files) {
    auto sequence = prompt_;
    sequence.insert(sequence.end(), result.ids.begin(), result.ids.end());
    sequence.resize(static_cast<std::size_t>(machine.pipeline().position()));
    fed_.insert(fed_.end(), sequence.begin(), sequence.end());
    report_.prefill_tokens_per_s = result.prefill_tokens_per_s(prompt_.size());
    report_.decode_tokens_per_s = result.decode_tokens_per_s();
    report_.first_token_s = result.first_token_s;
    report_.ids = std::move(result.ids);
    print(stderr,
          fmt::format("prompt: {} tokens, {:.1f} tokens/s; generated: {} tokens, {:.1f} tokens/s\n",
                      prompt_.size(),
                      report_.prefill_tokens_per_s,
                      report_.ids.size(),
                      report_.decode_tokens_per_s));
    if (!files.logits) { return; }
    if (result.prompt_logits.empty()) {
      throw operation_stopped{"the prompt was stopped before its logits were there"};
    }
    static_assert(std::endian::native == std::endian::little, "the logits file is little endian");
    files.logits->write(std::as_bytes(std::span{result.prompt_logits}));
  }

  void write_routing(runtime::requirements const& needs,
                     std::vector<std::uint16_t> experts,
                     output_file& file) {
    observe::routing_trace trace{
        .layers = static_cast<std::uint32_t>(needs.mixture_layers),
        .top_k = static_cast<std::uint32_t>(needs.top_k),
        .experts = static_cast<std::uint32_t>(needs.experts),
        .first_layer = static_cast<std::uint32_t>(needs.first_mixture_layer),
        .tokens = {},
        .chosen = std::move(experts)};
    constexpr std::int32_t most = UINT16_MAX;
    for (auto const id : fed_) {
      trace.tokens.push_back(static_cast<std::uint16_t>(std::min(id, most)));
    }
    if (std::any_of(fed_.begin(), fed_.end(), [](std::int32_t id) { return id > most; })) {
      print(stderr,
            "the routing trace has 16 bits for a token id; larger ones are written as 65535\n");
    }
    file.write(observe::routing_trace_bytes(wanted_.output.routing->string(), trace));
  }

  /// Puts a span that began at `start` on the timeline; returns now.
  static std::uint64_t mark(outputs& files,
                            char const* name,
                            std::uint64_t start,
                            std::uint64_t count) {
    if (!files.trace) { return 0; }
    auto const now = files.trace->now_ns();
    std::array const arguments{observe::trace_argument{"count", static_cast<std::int64_t>(count)}};
    files.trace->complete({.name = name,
                           .category = "pipeline",
                           .track = 1,
                           .start_ns = start,
                           .duration_ns = now - start,
                           .arguments = arguments});
    return now;
  }

  void finish(chain_plan const& plan, expected_rates const* rates, outputs& files) {
    report_.model = wanted_.model.string();
    report_.chain = plan.setup.chain->name;
    report_.prompt_ids = prompt_;
    if (files.trace) { files.trace->close(); }
    auto const text = wanted_.output.json ? to_json(report_, plan, rates) : std::string{};
    if (files.json) { files.json->write(text); }
    for (auto* file : {&files.logits, &files.routing, &files.json}) {
      if (*file) { (*file)->commit(); }
    }
    if (json_on_stdout()) { print(stdout, text); }
  }

  options const& wanted_;
  std::string_view program_;
  stopwatch since_start_;
  std::optional<tokenize::tokenizer> tokenizer_;
  std::vector<std::int32_t> prompt_;
  std::vector<token_window> windows_;
  std::vector<std::int32_t> fed_;  ///< every token that went through the model
  run_report report_;
};

std::string list_chains() {
  std::string text;
  for (auto const& entry : chain_table) {
    text += fmt::format("{:<26} {}\n", entry.name, entry.description);
  }
  return text;
}

void run_command(std::string_view program, int argc, char const* const* argv) {
  auto const wanted = parse_command_line(argc, argv);
  if (wanted.help) { return print(stdout, wanted.help_text); }
  if (wanted.list_chains) { return print(stdout, list_chains()); }
  session{program, wanted}.run();
}

}  // namespace

int run(std::string_view program, int argc, char const* const* argv) noexcept {
  auto const say = [program](char const* sentence) {
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(program.size()), program.data(), sentence);
  };
  try {
    run_command(program, argc, argv);
    return 0;
  } catch (usage_error const& wrong) {
    say(wrong.what());
    return 2;
  } catch (std::bad_alloc const&) {
    say("memory ran out; give the tiers less");
  } catch (std::exception const& failure) { say(failure.what()); }
  return 1;
}

}  // namespace terrace::runner
