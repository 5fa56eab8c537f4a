// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include "bench.hpp"
#include "capacity.hpp"
#include "engine.hpp"
#include "family.hpp"
#include "generation.hpp"
#include "inputs.hpp"
#include "interrupt.hpp"
#include "likelihood.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "paper_model.hpp"
#include "presets.hpp"
#include "rates.hpp"
#include "report.hpp"
#include "stopwatch.hpp"

#include <terrace/format/model_config.hpp>
#include <terrace/observe/progress.hpp>
#include <terrace/observe/report.hpp>
#include <terrace/observe/routing_trace.hpp>
#include <terrace/tokenize/utf8.hpp>
#include <terrace/tokenize/visible_text.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
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

/// For people; a closed standard error ends nothing.
void note(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

/// Files that are asked for, opened before any work is done so that a wrong path costs nothing.
struct outputs {
  explicit outputs(output_options const& wanted) {
    if (wanted.json && *wanted.json != "-") { json.emplace(*wanted.json); }
    if (wanted.logits) { logits.emplace(*wanted.logits); }
    if (wanted.routing) { routing.emplace(*wanted.routing); }
  }
  std::optional<output_file> json, logits, routing;
  std::unique_ptr<observe::trace_writer> trace;  ///< made once the plan holds
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
    int const limit = context_limit(catalog.meta());
    inputs_ = read_inputs(wanted_, catalog, limit);
    auto const plan = plan_chain(catalog, wanted_.chain, pipeline_options(limit));
    check(plan);
    if (auto const* preset = wanted_.chain.made_by) {
      note(describe(*preset, plan.rules, wanted_));
    }
    if (wanted_.plan_only) { return print_plan(plan, measure_rates(catalog, plan), "", files); }
    if (wanted_.output.trace) {
      files.trace = std::make_unique<observe::trace_writer>(wanted_.output.trace->string());
    }
    note(summarise(plan) + "\n");
    engine machine = load(catalog, plan, files);
    work(machine, files);
    report_.tiers = machine.counters();
    note(observe::report(report_.tiers));
    finish(plan, nullptr, files);
  }

 private:
  [[nodiscard]] bool json_on_stdout() const { return wanted_.output.json == "-"; }
  /// A result for people: to standard output unless that carries the JSON.
  void print_result(std::string_view text) const {
    json_on_stdout() ? note(text) : print(stdout, text);
  }

  void plan_config(outputs& files) {
    if (!wanted_.plan_only) {
      throw contract_error{wanted_.model.string() +
                           " holds no weights; only --plan works without them"};
    }
    if (wanted_.prompt.given() && !wanted_.prompt.ids) {
      throw contract_error{
          "a text has no effect on the plan of a config.json, which has no tokenizer; give --ctx"};
    }
    inputs_.prompt = wanted_.prompt.ids.value_or(std::vector<std::int32_t>{});
    auto const meta = format::read_model_config(
        wanted_.model.parent_path().empty() ? "." : wanted_.model.parent_path());
    require_family(wanted_.model.string(), meta.get_string("general.architecture"), program_);
    auto const options = pipeline_options(context_limit(meta));
    auto const model = read_paper_model(wanted_.model, options, counted_bytes);
    auto const plan = plan_on_paper(model.needs, wanted_.chain, options);
    check(plan);
    auto rates = count_token_bytes(plan.needs, plan.fastest().memory);
    rates.memory_bytes_per_s = measure_memory_rate(options.threads);
    print_plan(plan, rates, describe(model), files);
  }
  void print_plan(chain_plan const& plan,
                  expected_rates const& rates,
                  std::string const& heading,
                  outputs& files) {
    if (!json_on_stdout()) { print(stdout, heading + describe(plan) + describe(rates)); }
    finish(plan, &rates, files);
  }

  [[nodiscard]] runtime::pipeline_options pipeline_options(int context_limit) const {
    bool const exact = wanted_.mode == numerics::exact;
    return {.backend = wanted_.backend,
            .device = wanted_.device,
            .dispatch = wanted_.dispatch,
            .mode = wanted_.mode,
            .threads = wanted_.threads > 0 ? wanted_.threads : usable_processors(),
            .context_tokens = choose_context(wanted_, inputs_, context_limit),
            .half_kv = wanted_.half_kv.value_or(!exact),
            .on_load = {}};
  }
  static int context_limit(metadata const& meta) {
    return meta.get_count(meta.get_string("general.architecture") + ".context_length");
  }
  void check(chain_plan const& plan) const {
    check_inputs(wanted_, inputs_, plan.needs);
    if (wanted_.output.routing && plan.needs.experts == 0) {
      throw not_supported{"--routing has no effect: this model has no routed experts"};
    }
  }

  engine load(format::catalog const& catalog, chain_plan const& plan, outputs& files) {
    observe::progress progress{stderr, "loading"};
    auto const start = files.trace ? files.trace->now_ns() : 0;
    engine machine{catalog, plan, files.trace.get(), [&](std::uint64_t done, std::uint64_t total) {
                     progress.bytes(done, total);
                   }};
    report_.load_s = since_start_.seconds();
    mark(files, "load", start, plan.fastest().memory.pinned.size());
    return machine;
  }

  void work(engine& machine, outputs& files) {
    interrupt_guard interrupt;
    std::vector<std::uint16_t> experts;
    if (files.routing) { machine.pipeline().record_routing(&experts); }
    if (!wanted_.bench.empty()) { bench(machine, interrupt); }
    if (!inputs_.windows.empty()) { measure(machine); }
    if (!inputs_.prompt.empty()) { speak(machine, interrupt, files); }
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
    print_result(bench_table(results, wanted_.repetitions));
  }

  void measure(engine& machine) {
    observe::progress progress{stderr, "likelihood"};
    report_.nll = measure_likelihood(
        machine.pipeline(), inputs_.windows, [&](std::uint64_t done) { progress.tokens(done); });
    progress.finish();
    for (auto const& window : inputs_.windows) {
      fed_.insert(fed_.end(), window.begin(), window.end());
    }
    machine.pipeline().reset();
    auto const line = fmt::format(
        "nll: mean {:.6f} over {} windows\n", report_.nll->mean, report_.nll->windows.size());
    print_result(line);
  }

  void speak(engine& machine, interrupt_guard const& interrupt, outputs& files) {
    auto const* tokenizer = inputs_.tokenizer ? &*inputs_.tokenizer : nullptr;
    bool const text_on_terminal = !json_on_stdout() && ::isatty(STDOUT_FILENO) == 1;
    std::optional<observe::progress> progress{std::in_place, stderr, "prompt"};
    tokenize::utf8_stream bytes;
    std::optional<tokenize::visible_text> visible;
    if (tokenizer != nullptr) { visible.emplace(*tokenizer); }
    std::uint64_t step = files.trace ? files.trace->now_ns() : 0;
    auto const show = [&](std::string const& text) {
      report_.text += text;
      if (!json_on_stdout()) { print(stdout, text); }
    };
    std::uint64_t generated = 0;
    generation_request request;
    request.prompt = inputs_.prompt;
    request.tokens = wanted_.tokens;
    request.sampler = wanted_.sampler;
    request.is_end = [&](std::int32_t id) {
      return !wanted_.ignore_eos && tokenizer != nullptr && tokenizer->is_end(id);
    };
    request.stop = [&] { return interrupt.requested(); };
    request.on_prefill = [&](std::uint64_t done) {
      progress->tokens(done);
      step = mark(files, "prompt", step, done);
    };
    request.on_token = [&](std::int32_t id) {
      if (generated++ == 0) {
        text_on_terminal ? progress.reset() : void(progress.emplace(stderr, "generating"));
      }
      if (progress) { progress->tokens(generated); }
      if (visible) { show(bytes.push(visible->push(id))); }
      step = mark(files, "token", step, 1);
    };
    auto result = generate(machine.pipeline(), request, machine.plan().pipeline.prefill_chunk);
    progress.reset();
    show(bytes.finish());
    if (!json_on_stdout()) { print(stdout, "\n"); }
    if (result.stopped) { note("stopped by Ctrl-C\n"); }
    if (result.context_full) {
      note(fmt::format("the context of {} tokens is full; raise --ctx to go on\n",
                       machine.pipeline().context_tokens()));
    }
    keep(machine, std::move(result), files);
  }

  void keep(engine& machine, generation result, outputs& files) {
    auto sequence = inputs_.prompt;
    sequence.insert(sequence.end(), result.ids.begin(), result.ids.end());
    sequence.resize(static_cast<std::size_t>(machine.pipeline().position()));
    fed_.insert(fed_.end(), sequence.begin(), sequence.end());
    report_.prefill_tokens_per_s = result.prefill_tokens_per_s(inputs_.prompt.size());
    report_.decode_tokens_per_s = result.decode_tokens_per_s();
    report_.first_token_s = result.first_token_s;
    report_.ids = std::move(result.ids);
    note(fmt::format("prompt: {} tokens, {:.1f} tokens/s; generated: {} tokens, {:.1f} tokens/s\n",
                     inputs_.prompt.size(),
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
      note("the routing trace has 16 bits for a token id; larger ones are written as 65535\n");
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
    report_.prompt_ids = inputs_.prompt;
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
  run_inputs inputs_;
  std::vector<std::int32_t> fed_;  ///< every token that went through the model
  run_report report_;
};

std::string list_chains() {
  std::string text;
  for (auto const& entry : chain_table) {
    auto const missing = entry.lacks();
    text += fmt::format("{:<26} {}{}\n",
                        entry.name,
                        entry.description,
                        missing.empty() ? "" : fmt::format(" (this build has no {})", missing));
  }
  text += "\npresets\n";
  for (auto const& one : preset_table) {
    text += fmt::format("{:<26} {}\n", one.name, one.meaning);
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
  std::signal(SIGPIPE,
              SIG_IGN);  // a reader that went away is a failure with a sentence, not a sudden death
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
