// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "chains.hpp"
#include "numbers.hpp"
#include "presets.hpp"

#include <terrace/core/named_choice.hpp>
#include <terrace/dispatch/any.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace terrace::runner {
namespace {

using runtime::compute_backend;

std::vector<bench_item> parse_bench(std::string const& text) {
  std::vector<bench_item> items;
  for (std::string_view rest = text;;) {
    auto const comma = rest.find(',');
    auto const item = rest.substr(0, comma);
    bool const prefill = item.starts_with("pp");
    int const tokens = item.size() > 2 ? parse_number<int>(item.substr(2)).value_or(0) : 0;
    if (!(prefill || item.starts_with("tg")) || tokens < 1) {
      throw usage_error{fmt::format(
          "--bench: `{}` is neither ppN (prefill) nor tgN (generation) with N of at least 1",
          item)};
    }
    items.push_back({.prefill = prefill, .tokens = tokens});
    if (comma == std::string_view::npos) { return items; }
    rest.remove_prefix(comma + 1);
  }
}

/// Builds the options one by one and remembers their names for the checks that follow.
class parser {
 public:
  parser() : app_{"Runs a language model whose weights may live on several tiers of memory."} {
    app_.set_help_flag("-h,--help", "Print this help");
    add_prompt();
    add_generation();
    add_machine();
    add_chain();
    add_outputs();
    add_absent();
  }

  options parse(int argc, char const* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
      options help;
      help.help = true;
      help.help_text = app_.help();
      return help;
    } catch (CLI::ParseError const& refused) {
      throw usage_error{std::string{refused.what()} + "; see --help"};
    }
    if (!read_.list_chains) {
      preset_ != nullptr ? use_preset() : choose_backend();
      check();
    }
    return std::move(read_);
  }

 private:
  /// An option with one value, whose text `take` reads; CLI11's own conversions would accept "0x10"
  /// and "010".
  template <class Take>
  void add(std::string const& name, std::string const& value, std::string const& help, Take take) {
    app_.add_option_function<std::string>(
            name, [take](std::string const& text) { take(text); }, help)
        ->type_name(value);
  }
  template <class Number>
  void add_number(std::string const& name,
                  Number& target,
                  Number least,
                  std::string const& help,
                  Number most = std::numeric_limits<Number>::max()) {
    add(name, "N", help, [name, &target, least, most](std::string const& text) {
      auto const value = parse_number<Number>(text);
      if (!value || !(*value >= least && *value <= most)) {
        auto const range = most == std::numeric_limits<Number>::max()
                               ? fmt::format("of at least {}", least)
                               : fmt::format("from {} to {}", least, most);
        throw usage_error{fmt::format("{}: `{}` is not a number {}", name, text, range)};
      }
      target = *value;
    });
  }
  template <class Optional>
  void add_parsed(std::string const& name,
                  std::string const& value,
                  std::string const& help,
                  Optional& target) {
    add(name, value, help, [name, value, &target](std::string const& text) {
      target = Optional::value_type::parse(text);
      if (!target) {
        throw usage_error{fmt::format("{}: `{}` is not a {} (see --help)", name, text, value)};
      }
    });
  }
  template <class Target>
  void add_text(std::string const& name,
                std::string const& value,
                std::string const& help,
                Target& target) {
    add(name, value, help, [name, &target](std::string const& text) {
      if (text.empty() && !std::is_same_v<Target, std::optional<std::string>>) {
        throw usage_error{name + ": the path is empty"};
      }
      target = text;
    });
  }
  /// An option whose value is one of a few words; `take` gets the index of the word.
  template <class Take>
  void add_choice(std::string const& name,
                  std::vector<std::string_view> const& words,
                  std::string const& help,
                  Take take) {
    add(name,
        fmt::format("{}", fmt::join(words, "|")),
        help,
        [name, words, take](std::string const& text) {
          auto const found = std::find(words.begin(), words.end(), text);
          if (found == words.end()) {
            throw usage_error{
                fmt::format("{}: `{}` is not a choice; give {}", name, text, list_of(words))};
          }
          take(static_cast<std::size_t>(found - words.begin()));
        });
  }

  void add_prompt() {
    auto& prompt = read_.prompt;
    add_text(
        "-m,--model", "PATH", "Any shard of a GGUF, a safetensors file, or a folder", read_.model);
    add_text("-p,--prompt", "TEXT", "The prompt", prompt.text);
    add_text("--prompt-file",
             "FILE",
             "The prompt is the content of FILE (- is standard input)",
             prompt.file);
    add("--prompt-ids",
        "IDS",
        "The prompt as token ids, verbatim: 1,2,3",
        [&prompt](std::string const& text) {
          prompt.ids = parse_ids(text);
          if (!prompt.ids) {
            throw usage_error{fmt::format(
                "--prompt-ids: `{}` is not a list of ids with commas, like 1,2,3", text)};
          }
        });
    app_.add_flag("--chat",
                  prompt.chat,
                  "The prompt is a user's message, put into the model's chat template");
    add_text("--system", "TEXT", "System message of the chat", prompt.system);
    add_text("--messages", "FILE", "A chat as a JSON array of {role, content}", prompt.messages);
    add_choice("--thinking",
               {"on", "off"},
               "Ask the chat template for (no) thinking",
               [&prompt](std::size_t word) { prompt.thinking = word == 0; });
  }

  void add_generation() {
    add_number("-n,--tokens", read_.tokens, 0, "Most tokens to generate (64)");
    app_.add_flag("--ignore-eos", read_.ignore_eos, "Go on after an end token");
    add_number("--temp",
               read_.sampler.temperature,
               0.0F,
               "Sampling temperature; 0, the default, is greedy",
               std::numeric_limits<float>::max());
    add_number("--top-k", read_.sampler.top_k, 0, "Sample among the K likeliest tokens (0: all)");
    add("--top-p",
        "F",
        "Sample among the likeliest tokens that sum to F (1: all)",
        [this](std::string const& text) {
          auto const share = parse_number<float>(text);
          if (!share || !(*share > 0 && *share <= 1)) {
            throw usage_error{
                fmt::format("--top-p: `{}` is not a number above 0 and at most 1", text)};
          }
          read_.sampler.top_p = *share;
        });
    add_number("--min-p",
               read_.sampler.min_p,
               0.0F,
               "Drop tokens below F times the likeliest one's probability",
               1.0F);
    add_number("--seed", read_.sampler.seed, std::uint64_t{0}, "Seed of the sampler (0)");
    add_number("--ctx", read_.context, 1, "Longest sequence in tokens (what the run needs)");
  }

  void add_machine() {
    add_number("--threads",
               read_.threads,
               1,
               "Threads that compute (processors this process may use)",
               1024);
    add_choice("--backend",
               {"cpu", "cuda", "kokkos"},
               "What computes (cuda where only a device reads the chain's fastest tier, else cpu)",
               [this](std::size_t word) {
                 if (word == 2) { throw absent("--backend kokkos"); }
                 if (word == 1 && !has_cuda) { throw no_component("--backend cuda", "CUDA"); }
                 read_.backend = word == 1 ? compute_backend::cuda : compute_backend::cpu;
               });
    add_number("--device", read_.device, 0, "CUDA device, counted from 0 (0)");
    add_choice(
        "--numerics",
        {"exact", "fast"},
        "How activations are rounded (fast)",
        [this](std::size_t word) { read_.mode = word == 0 ? numerics::exact : numerics::fast; });
    add_choice("--kv",
               {"f32", "f16", "q8", "k8v4", "tq4", "tq3"},
               "Cached keys and values (f32 under exact, else f16)",
               [this](std::size_t word) {
                 if (word > 1) { throw absent("--kv q8, k8v4, tq4 and tq3"); }
                 read_.half_kv = word == 1;
               });
    add("--dispatch",
        "device|host|min-batch:N|auto",
        "Where experts are computed that the host can read too (device with --backend cuda)",
        [this](std::string const& text) {
          try {
            static_cast<void>(dispatch::any{text});
          } catch (contract_error const& refused) {
            throw usage_error{std::string{"--dispatch: "} + refused.what()};
          }
          read_.dispatch = text;
        });
  }

  void add_chain() {
    auto& chain = read_.chain;
    chain.name = chain_table.front().name;
    std::vector<std::string_view> names;
    for (auto const& entry : chain_table) {
      if (entry.lacks().empty()) { names.push_back(entry.name); }
    }
    add("--chain",
        fmt::format("{}", fmt::join(names, "|")),
        "Which tiers, fast to slow",
        [&chain, names](std::string const& text) {
          auto const known = std::find_if(chain_table.begin(),
                                          chain_table.end(),
                                          [&](chain_entry const& one) { return one.name == text; });
          if (known == chain_table.end()) {
            throw usage_error{
                fmt::format("--chain: `{}` is not a choice; give {}", text, list_of(names))};
          }
          if (auto const missing = known->lacks(); !missing.empty()) {
            throw no_component("--chain " + text, missing);
          }
          chain.name = known->name;
        });
    app_.add_flag("--list-chains", read_.list_chains, "List the chains and the presets, and exit");
    std::vector<std::string_view> presets;
    for (auto const& one : preset_table) { presets.push_back(one.name); }
    add_choice("--preset",
               presets,
               "A chain with its placement and its dispatch (see --list-chains)",
               [this](std::size_t word) { preset_ = &preset_table[word]; });
    add_cap("vram", "Cap of the device's memory", chain.vram);
    add_cap("unified", "Cap of managed memory, which is kept on the device", chain.unified);
    add_cap("pinned", "Cap of main memory that the device reads too", chain.pinned);
    add_cap("dram", "Cap of main memory", chain.dram);
    add("--pmem",
        "PATH[:SIZE]",
        "Persistent memory: a DAX device, or a file that is made or extended to SIZE",
        [&chain](std::string const& text) {
          chain.pmem = sized_path::parse(text);
          if (chain.pmem->path.empty()) { throw usage_error{"--pmem: the path is empty"}; }
        });
    app_.add_option("--place",
                    chain.place,
                    "Keep tensors in a tier: 'REGEX=TIER[:pin]', repeatable, first match wins")
        ->type_name("RULE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    add_parsed("--experts",
               "N|N%",
               "Expert slots of the fastest tier, of all routed experts",
               chain.experts);
    add_policy("--evict", "Who leaves a full tier", chain.evict, evict::any::names, "oracle");
    add_policy("--prefetch", "What is fetched ahead", chain.prefetch, prefetch::any::names, "");
  }
  /// The size of a tier: a build without the tier says what it lacks.
  void add_cap(std::string_view tier,
               std::string const& help,
               std::optional<size_request>& target) {
    auto const name = fmt::format("--{}", tier);
    auto const& entry = *std::find_if(
        tier_table.begin(), tier_table.end(), [tier](auto const& one) { return one.name == tier; });
    add(name,
        "SIZE",
        help + ": 512MiB, 25% of what is free, or all (the default)",
        [name, &entry, &target](std::string const& text) {
          if (!entry.built) { throw no_component(name, entry.component); }
          target = size_request::parse(text);
          if (!target) {
            throw usage_error{fmt::format("{}: `{}` is not a SIZE (see --help)", name, text)};
          }
        });
  }
  void add_policy(std::string const& name,
                  std::string const& help,
                  std::optional<std::string>& target,
                  std::span<std::string_view const> names,
                  std::string_view only_in_replay) {
    add(name,
        "NAME",
        fmt::format("{}: {}", help, list_of(names)),
        [=, &target](std::string const& text) {
          if (!only_in_replay.empty() && text == only_in_replay) {
            throw not_supported{
                fmt::format("{} {} needs the future, which only terrace-replay knows; choose {}",
                            name,
                            text,
                            list_of(names))};
          }
          if (std::find(names.begin(), names.end(), text) == names.end()) {
            throw usage_error{
                fmt::format("{}: `{}` is not a choice; give {}", name, text, list_of(names))};
          }
          target = text;
        });
  }

  void add_outputs() {
    auto& output = read_.output;
    app_.add_flag("--plan",
                  read_.plan_only,
                  "Print what each tier will hold and exit; PATH may be a config.json");
    add("--bench", "LIST", "Measure, e.g. pp512,tg128", [this](std::string const& text) {
      read_.bench = parse_bench(text);
    });
    add_number("-r", read_.repetitions, 1, "Repetitions of each measurement (5)", 10000);
    add_text("--json",
             "FILE",
             "Write one JSON object about the run (- is standard output)",
             output.json);
    add_text("--logits",
             "FILE",
             "Write the logits of the last prompt position, float32 little endian",
             output.logits);
    add_text("--nll", "FILE", "Mean negative log-likelihood of the text in FILE", read_.nll_text);
    add_text("--nll-ids", "FILE", "The same for windows of ids, one a line", read_.nll_ids);
    add_text("--routing", "FILE", "Write which experts each token chose", output.routing);
    add_text("--trace", "FILE", "Write a timeline for Perfetto", output.trace);
  }

  /// Spellings of the contract that this build cannot honour: known, so that the sentence says why.
  void add_absent() {
    for (std::string const name : {"--nvme", "--draft"}) {
      add(name, "", "(not in this build)", [name](std::string const&) { throw absent(name); });
    }
  }
  static not_supported absent(std::string const& what) {
    return not_supported{
        what +
        ": not in this version, which reads the model file where it is; it belongs to a "
        "later one"};
  }
  static not_supported no_component(std::string const& what, std::string_view component) {
    return not_supported{
        fmt::format("{}: this build has no {}; install it and build again", what, component)};
  }

  [[nodiscard]] bool given(char const* name) const { return app_.count(name) > 0; }

  /// Refuses each of `names` that was given, because of `reason`.
  void refuse(std::initializer_list<char const*> names, std::string_view reason) const {
    for (char const* name : names) {
      if (given(name)) {
        throw usage_error{fmt::format("{} has no effect {}; leave it out", name, reason)};
      }
    }
  }

  void use_preset() {
    auto const why = fmt::format("with --preset {}, which chooses it", preset_->name);
    refuse({"--chain", "--place", "--backend"}, why);
    if (preset_->experts == preset_experts::on_device) { refuse({"--evict"}, why); }
    if (given("--unified")) {
      refuse({"--vram"}, "beside --unified, which is the same memory here");
    }
    apply_preset(*preset_, given("--dispatch"), read_);
  }
  void choose_backend() {
    if (given("--backend")) { return; }
    bool const host = find_chain(read_.chain.name).fastest().host_reads;
    read_.backend = host ? compute_backend::cpu : compute_backend::cuda;
  }

  void check() const {
    if (read_.model.empty()) { throw usage_error{"no model is named; give -m PATH (see --help)"}; }
    check_prompt();
    check_modes();
    if (read_.sampler.temperature == 0.0F) {
      refuse({"--top-k", "--top-p", "--min-p", "--seed"}, "without --temp above 0 (greedy)");
    }
    check_chain();
    check_outputs();
  }

  void check_prompt() const {
    auto const& prompt = read_.prompt;
    if (int{prompt.text.has_value()} + prompt.file.has_value() + prompt.ids.has_value() +
            prompt.messages.has_value() >
        1) {
      throw usage_error{
          "more than one prompt is given; choose one of -p, --prompt-file, --prompt-ids and "
          "--messages"};
    }
    if (prompt.ids) {
      refuse({"--chat", "--system", "--thinking"}, "with --prompt-ids, which are taken verbatim");
    }
    if (prompt.messages) { refuse({"--system"}, "with --messages, which hold the whole chat"); }
    if (prompt.chat && !prompt.text && !prompt.file) {
      if (!prompt.messages) {
        throw usage_error{"--chat needs a message; give -p TEXT or --prompt-file FILE"};
      }
    }
    if (!prompt.chat && !prompt.messages) {
      refuse({"--system", "--thinking"}, "without --chat or --messages");
    }
  }

  void check_modes() const {
    bool const nll = read_.nll_text || read_.nll_ids;
    if (read_.nll_text && read_.nll_ids) { throw usage_error{"give one of --nll and --nll-ids"}; }
    if (read_.bench.empty()) { refuse({"-r"}, "without --bench"); }
    if (read_.plan_only) {
      refuse({"--bench", "--nll", "--nll-ids", "--logits", "--routing", "--trace"},
             "with --plan, which runs nothing");
      return;
    }
    if (!read_.bench.empty()) {
      refuse({"-p",
              "--prompt-file",
              "--prompt-ids",
              "--messages",
              "--chat",
              "--nll",
              "--nll-ids",
              "--logits",
              "--routing",
              "--tokens",
              "--ignore-eos",
              "--temp"},
             "with --bench, which feeds tokens of its own");
      return;
    }
    if (!read_.prompt.given()) {
      if (!nll) {
        throw usage_error{
            "there is nothing to do; give a prompt (-p, --prompt-file, --prompt-ids or "
            "--messages), "
            "--nll, --nll-ids, --bench or --plan"};
      }
      refuse({"--tokens", "--ignore-eos", "--temp", "--logits"}, "without a prompt");
    }
  }

  /// Two results in one file would leave one of them.
  void check_outputs() const {
    auto const& output = read_.output;
    std::vector<std::filesystem::path> files;
    if (output.json && *output.json != "-") { files.emplace_back(*output.json); }
    for (auto const* one : {&output.logits, &output.routing, &output.trace}) {
      if (*one) { files.push_back((*one)->lexically_normal()); }
    }
    std::sort(files.begin(), files.end());
    if (auto const twice = std::adjacent_find(files.begin(), files.end()); twice != files.end()) {
      throw usage_error{
          fmt::format("two outputs are to go to {}; give each a file of its own", twice->string())};
    }
  }

  void check_chain() const {
    auto const& chain = find_chain(read_.chain.name);
    for (auto const& tier : tier_table) {
      if (tier.memory == tier_memory::file || chain.has(tier.name)) { continue; }
      if (preset_ != nullptr && tier.name == "vram" && chain.has("unified")) { continue; }
      auto const option = fmt::format("--{}", tier.name);
      refuse(
          {option.c_str()},
          fmt::format(
              "with --chain {}, which has no {} level (see --list-chains)", chain.name, tier.name));
    }
    if (chain.has("pmem") && !read_.chain.pmem) {
      throw usage_error{fmt::format("--chain {} needs --pmem PATH[:SIZE]", chain.name)};
    }
    check_backend(chain);
  }

  void check_backend(chain_entry const& chain) const {
    auto const& tier = chain.fastest();
    if (read_.backend == compute_backend::cuda) {
      if (tier.device_reads) { return; }
      throw usage_error{fmt::format(
          "--backend cuda cannot compute with --chain {}: a device does not read {}; choose a "
          "chain whose first tier is vram, unified or pinned",
          chain.name,
          tier.name)};
    }
    if (!tier.host_reads) {
      throw usage_error{fmt::format(
          "--backend cpu cannot compute with --chain {}: the host does not read {}; leave it out, "
          "or choose another chain",
          chain.name,
          tier.name)};
    }
    if (given("--dispatch") && read_.dispatch != "host") {
      refuse({"--dispatch"}, "with the cpu backend, which computes everything on the host");
    }
    if (!chain.needs_cuda()) { refuse({"--device"}, "without a CUDA device in the chain"); }
  }

  options read_;
  preset const* preset_ = nullptr;
  CLI::App app_;
};

}  // namespace

options parse_command_line(int argc, char const* const* argv) { return parser{}.parse(argc, argv); }

}  // namespace terrace::runner
