// SPDX-License-Identifier: Apache-2.0
// The runners as programs: exit status, what goes to which stream, which files appear.
#include "golden/support/golden_models.hpp"
#include "runner/support/program.hpp"
#include "support/scratch_folder.hpp"

#include <terrace/observe/routing_trace.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace terrace::runner::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using json = nlohmann::json;
using terrace::test::bytes_of;
using terrace::test::scratch_folder;

using words = std::vector<std::string>;

outcome llama(words arguments, std::string const& input = {}) {
  arguments.insert(arguments.begin(), {"-m", golden::any_model("llama-tiny").string()});
  return program{TERRACE_LLAMA, arguments}.run(input);
}
outcome minimax(words arguments) {
  arguments.insert(arguments.begin(), {"-m", golden::any_model("minimax-m2-tiny").string()});
  return program{TERRACE_MINIMAX, arguments}.run();
}
outcome llama_with(words arguments, std::string const& last) {
  arguments.push_back(last);
  return llama(arguments);
}
outcome minimax_with(words arguments, std::string const& last) {
  arguments.push_back(last);
  return minimax(arguments);
}
json json_of(outcome const& done) {
  INFO(done.err);
  REQUIRE(done.status == 0);
  return json::parse(done.out);
}
std::set<std::string> keys_of(json const& object) {
  std::set<std::string> keys;
  for (auto const& [key, value] : object.items()) { keys.insert(key); }
  return keys;
}
/// The number after "smallest value that works is".
std::string smallest_in(std::string const& sentence) {
  std::smatch match;
  bool const found =
      std::regex_search(sentence, match, std::regex{"smallest value that works is ([0-9]+)"});
  INFO(sentence);
  REQUIRE(found);
  return match[1];
}
/// A failure is one sentence on standard error and nothing on standard output.
void check_failure(outcome const& done, int status, std::string const& part) {
  INFO(done.err);
  CHECK(done.status == status);
  CHECK(done.out.empty());
  CHECK_THAT(done.err, ContainsSubstring(part));
  CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
}
std::size_t files_in(scratch_folder const& folder) {
  auto const all = std::filesystem::directory_iterator{folder.file("")};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE("help and the list of chains need no model", "[runner]") {
  auto const help = program{TERRACE_LLAMA, {"--help"}}.run();
  CHECK(help.status == 0);
  CHECK_THAT(help.out, ContainsSubstring("--prompt-ids") && ContainsSubstring("--experts"));
  auto const chains = program{TERRACE_KIMI, {"--list-chains"}}.run();
  CHECK(chains.status == 0);
  CHECK_THAT(chains.out, ContainsSubstring("dram-nvme") && ContainsSubstring("pmem-nvme"));
}

TEST_CASE("usage errors end with status 2 and say one sentence", "[runner]") {
  check_failure(program{TERRACE_LLAMA, {}}.run(), 2, "-m");
  check_failure(program{TERRACE_LLAMA, {"-m", "x", "-p", "y", "--no-such-option"}}.run(),
                2,
                "--no-such-option");
  check_failure(program{TERRACE_LLAMA, {"-m", "x", "-p", "y", "-n", "many"}}.run(), 2, "many");
  check_failure(program{TERRACE_LLAMA, {"-m", "x", "-p", "y", "--prompt-ids", "1"}}.run(),
                2,
                "more than one prompt");
}

TEST_CASE("failures end with status 1 and name the file", "[runner]") {
  scratch_folder const folder;
  check_failure(
      program{TERRACE_LLAMA, {"-m", folder.file("none.gguf"), "-p", "x"}}.run(), 1, "none.gguf");
  auto const broken = folder.write("broken.gguf", "GGUF\3\0\0\0");
  check_failure(program{TERRACE_LLAMA, {"-m", broken, "-p", "x"}}.run(), 1, "broken.gguf");
  check_failure(llama({"--prompt-file", folder.file("none.txt")}), 1, "none.txt");
}

TEST_CASE("a model of another family is refused with the name of its runner", "[runner]") {
  auto const minimax_model = golden::any_model("minimax-m2-tiny").string();
  check_failure(
      program{TERRACE_LLAMA, {"-m", minimax_model, "-p", "x"}}.run(), 1, "terrace-minimax");
  auto const kimi_model = golden::any_model("kimi-k2-tiny").string();
  check_failure(program{TERRACE_MINIMAX, {"-m", kimi_model, "-p", "x"}}.run(), 1, "terrace-kimi");
  auto const llama_model = golden::any_model("llama-tiny").string();
  check_failure(program{TERRACE_KIMI, {"-m", llama_model, "-p", "x"}}.run(), 1, "terrace-llama");
}

TEST_CASE("options of later versions end with status 1", "[runner]") {
  check_failure(llama({"-p", "x", "--kv", "tq4"}), 1, "later one");
  check_failure(llama({"-p", "x", "--backend", "kokkos"}), 1, "later one");
}

TEST_CASE(
    "with --json - standard output holds one object with the documented keys and nothing else",
    "[runner]") {
  auto const report = json_of(minimax({"-p", "And the LORD said", "-n", "5", "--json", "-"}));
  CHECK(keys_of(report) == std::set<std::string>{"model",
                                                 "backend",
                                                 "chain",
                                                 "prompt_ids",
                                                 "ids",
                                                 "text",
                                                 "pp_tokens_per_s",
                                                 "tg_tokens_per_s",
                                                 "load_s",
                                                 "ttft_s",
                                                 "plan",
                                                 "tiers"});
  CHECK(report["ids"].size() == 5);
  CHECK(report["backend"] == "cpu");
  CHECK(report["chain"] == "dram-nvme");
  REQUIRE(report["tiers"].size() == 2);
  for (auto const& tier : report["tiers"]) {
    CHECK(keys_of(tier) == std::set<std::string>{"name",
                                                 "capacity_bytes",
                                                 "peak_bytes",
                                                 "hits",
                                                 "misses",
                                                 "bytes_in",
                                                 "bytes_out",
                                                 "evictions",
                                                 "stall_s"});
  }
  CHECK(report["tiers"][0]["name"] == "dram");
  CHECK(report["tiers"][0]["peak_bytes"] <= report["plan"]["predicted_peak_bytes"]);
  CHECK(report["pp_tokens_per_s"] > 0);
  CHECK(report["tg_tokens_per_s"] > 0);
}

TEST_CASE("text streams to standard output and the table to standard error", "[runner]") {
  scratch_folder const folder;
  auto const done =
      llama({"-p", "In the beginning", "-n", "6", "--json", folder.file("report.json")});
  CHECK(done.status == 0);
  auto const report = json::parse(bytes_of(folder.file("report.json")));
  CHECK(done.out == report["text"].get<std::string>() + "\n");
  CHECK_THAT(
      done.err,
      ContainsSubstring("tier") && ContainsSubstring("nvme") && ContainsSubstring("tokens/s"));
}

TEST_CASE("ids are taken verbatim and text gets the BOS the file asks for", "[runner]") {
  auto const verbatim = json_of(llama({"--prompt-ids", "5,6,7", "-n", "0", "--json", "-"}));
  CHECK(verbatim["prompt_ids"] == json{5, 6, 7});
  CHECK(verbatim["ids"].empty());
  auto const text = json_of(llama({"-p", "", "-n", "1", "--json", "-"}));
  CHECK(text["prompt_ids"].size() == 1);  // llama-tiny asks for a BOS
  check_failure(llama({"--prompt-ids", "5,99999999"}), 1, "99999999");
}

TEST_CASE("a prompt may come from a file or from standard input", "[runner]") {
  scratch_folder const folder;
  auto const path = folder.write("prompt.txt", "In the beginning");
  auto const expected =
      json_of(llama({"-p", "In the beginning", "-n", "1", "--json", "-"}))["prompt_ids"];
  CHECK(json_of(llama({"--prompt-file", path, "-n", "1", "--json", "-"}))["prompt_ids"] ==
        expected);
  CHECK(json_of(llama({"--prompt-file", "-", "-n", "1", "--json", "-"},
                      "In the beginning"))["prompt_ids"] == expected);
}

TEST_CASE("a chat is the same from options and from a file of messages", "[runner]") {
  scratch_folder const folder;
  auto const messages = folder.write(
      "chat.json",
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a hack?"}])");
  auto const from_options = json_of(llama(
      {"--chat", "--system", "Be brief.", "-p", "What is a hack?", "-n", "1", "--json", "-"}));
  auto const from_file = json_of(llama({"--messages", messages, "-n", "1", "--json", "-"}));
  CHECK(from_options["prompt_ids"] == from_file["prompt_ids"]);
  check_failure(llama({"--chat", "--thinking", "on", "-p", "x"}), 1, "thinking");
  auto const broken = folder.write("broken.json", "[{]");
  check_failure(llama({"--messages", broken}), 1, "broken.json");
}

TEST_CASE("generation stops at an end token unless it is told to go on", "[runner]") {
  words const chat{
      "--chat", "-p", "What does kludge mean?", "-n", "120", "--numerics", "exact", "--json", "-"};
  auto const stopped = json_of(minimax(chat));
  REQUIRE(stopped["ids"].size() < 120);
  auto going_on = chat;
  going_on.emplace_back("--ignore-eos");
  auto const longer = json_of(minimax(going_on));
  CHECK(longer["ids"].size() == 120);
  CHECK(std::equal(stopped["ids"].begin(), stopped["ids"].end(), longer["ids"].begin()));
}

TEST_CASE("the logits file holds the last prompt position, whose largest is the first greedy token",
          "[runner]") {
  scratch_folder const folder;
  auto const report = json_of(llama(
      {"-p", "In the beginning", "-n", "1", "--logits", folder.file("logits"), "--json", "-"}));
  auto const bytes = bytes_of(folder.file("logits"));
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  REQUIRE(logits.size() == 4096);
  CHECK(std::max_element(logits.begin(), logits.end()) - logits.begin() ==
        report["ids"][0].get<int>());
}

TEST_CASE("likelihoods are means over windows, alone or beside a prompt", "[runner]") {
  scratch_folder const folder;
  auto const ids = folder.write("windows.txt", "1,40,41,42,43\n1,50,51\n");
  auto const report = json_of(llama({"--nll-ids", ids, "--numerics", "exact", "--json", "-"}));
  auto const& windows = report["nll"]["windows"];
  REQUIRE(windows.size() == 2);
  CHECK(windows[0]["tokens"] == 5);
  double const mean = (windows[0]["mean"].get<double>() + windows[1]["mean"].get<double>()) / 2;
  CHECK(std::abs(report["nll"]["mean"].get<double>() - mean) < 1e-12);
  auto const text =
      folder.write("text.txt", "In the beginning God created the heaven and the earth.");
  auto const both = json_of(llama({"--nll", text, "-p", "In", "-n", "2", "--json", "-"}));
  CHECK(both["nll"]["windows"].size() == 1);
  CHECK(both["ids"].size() == 2);
  check_failure(llama({"--nll-ids", folder.write("bad.txt", "1,2\n1;2\n")}), 1, "bad.txt: line 2");
}

TEST_CASE("the routing file is a routing trace of every token that went through the model",
          "[runner]") {
  scratch_folder const folder;
  auto const report = json_of(minimax({"--prompt-ids",
                                       "5,6,7",
                                       "-n",
                                       "3",
                                       "--ignore-eos",
                                       "--routing",
                                       folder.file("r"),
                                       "--json",
                                       "-"}));
  auto const trace = observe::read_routing_trace(folder.file("r"));
  CHECK(trace.tokens.size() == 5);  // the last generated token is not fed back
  CHECK(trace.tokens[1] == 6);
  CHECK(trace.tokens[3] == report["ids"][0].get<int>());
  CHECK(trace.layers == 5);
  CHECK(trace.top_k == 4);
  CHECK(trace.experts == 48);
}

TEST_CASE("the timeline is JSON with spans of the pipeline and the store", "[runner]") {
  scratch_folder const folder;
  CHECK(minimax({"--prompt-ids", "5,6,7", "-n", "3", "--trace", folder.file("t.json")}).status ==
        0);
  auto const trace = json::parse(bytes_of(folder.file("t.json")));
  std::set<std::string> categories;
  for (auto const& event : trace["traceEvents"]) {
    if (event.contains("cat")) { categories.insert(event["cat"].get<std::string>()); }
  }
  CHECK(categories == std::set<std::string>{"acquire", "pipeline"});
}

TEST_CASE("a cap that is too small is refused with the smallest that works, which then holds",
          "[runner]") {
  words const run{"-p", "And the LORD said unto Moses", "-n", "8", "--json", "-", "--dram"};
  for (auto* const family : {&llama_with, &minimax_with}) {
    auto const refused = family(run, "1");
    check_failure(refused, 1, "too small");
    auto const smallest = smallest_in(refused.err);
    auto const report = json_of(family(run, smallest));
    CHECK(report["tiers"][0]["capacity_bytes"] == std::stoull(smallest));
    CHECK(report["tiers"][0]["peak_bytes"] <= std::stoull(smallest));
    CHECK(family(run, std::to_string(std::stoull(smallest) - 1)).status == 1);
  }
}

TEST_CASE("the cap holds while one prompt's experts replace another's", "[runner]") {
  scratch_folder const folder;
  std::string windows;
  for (int window = 0; window < 6; ++window) {
    windows += "1";
    for (int i = 0; i < 30; ++i) { windows += "," + std::to_string(40 + 300 * window + 7 * i); }
    windows += "\n";
  }
  auto const smallest =
      smallest_in(minimax({"--nll-ids", folder.write("w", windows), "--dram", "1"}).err);
  auto const report =
      json_of(minimax({"--nll-ids", folder.file("w"), "--dram", smallest, "--json", "-"}));
  auto const& dram = report["tiers"][0];
  CHECK(dram["evictions"] > 0);
  CHECK(dram["peak_bytes"] <= dram["capacity_bytes"]);
}

TEST_CASE("expert slots below top-k are refused with the smallest number that works", "[runner]") {
  words const run{"--prompt-ids", "5,6,7", "-n", "2", "--experts"};
  auto const refused = minimax_with(run, "3");
  check_failure(refused, 1, "3 of 240 expert slots");
  CHECK(smallest_in(refused.err) == "4");
  CHECK(minimax_with(run, "4").status == 0);
  check_failure(minimax_with(run, "0"), 1, "smallest value that works is 4");
  check_failure(minimax_with(run, "1%"), 1, "smallest value that works is 4");
}

TEST_CASE("options that cannot do anything for this model or chain are refused", "[runner]") {
  check_failure(llama({"-p", "x", "--experts", "50%"}), 1, "no routed experts");
  check_failure(llama({"-p", "x", "--prefetch", "gate_lookahead"}), 1, "no effect");
  check_failure(llama({"-p", "x", "--prefetch", "trace_markov"}), 1, "no effect");
  scratch_folder const folder;
  check_failure(llama({"-p", "x", "--routing", folder.file("r")}), 1, "no routed experts");
  check_failure(minimax({"-p", "x", "--place", "no\\.such\\.tensor=dram"}), 1, "matched no tensor");
  check_failure(minimax({"-p", "x", "--place", "attn=pmem"}), 1, "no tier `pmem`");
  check_failure(minimax({"-p", "x", "--place", "attn=nvme:pin"}), 1, "cannot be pinned");
  check_failure(minimax({"-p", "x", "--place", "(=dram"}), 1, "regular expression");
  check_failure(minimax({"-p", "x", "--evict", "oracle"}), 1, "terrace-replay");
  check_failure(minimax({"-p", "x", "--evict", "pinned", "--experts", "10%"}), 1, "--evict pinned");
  CHECK(files_in(folder) == 0);
}

TEST_CASE("placement keeps blocks where a rule puts them", "[runner]") {
  words const run{"--prompt-ids", "5,6,7,8", "-n", "4", "--ignore-eos", "--json", "-"};
  auto const plain = json_of(minimax(run));
  auto placed = run;
  placed.insert(
      placed.end(),
      {"--place", "blk\\.3\\.ffn_.*_exps=dram:pin", "--place", "attn=nvme", "--experts", "52"});
  auto const moved = json_of(minimax(placed));
  CHECK(moved["ids"] == plain["ids"]);
  CHECK(moved["plan"]["pinned_bytes"] != plain["plan"]["pinned_bytes"]);
  auto few = run;
  few.insert(few.end(), {"--place", "blk\\.3\\.ffn_.*_exps=dram:pin", "--experts", "51"});
  check_failure(minimax(few), 1, "52");
}

TEST_CASE("a persistent memory file is made, used and kept, but not by a plan", "[runner]") {
  scratch_folder const folder;
  words run{"--prompt-ids",
            "5,6,7",
            "-n",
            "2",
            "--chain",
            "dram-pmem-nvme",
            "--pmem",
            folder.file("pool") + ":24MiB",
            "--json",
            "-"};
  auto plan = run;
  plan.erase(plan.begin() + 2, plan.begin() + 4);
  plan.emplace_back("--plan");
  CHECK(json_of(minimax(plan))["plan"]["pmem_bytes"] == 24U << 20U);
  CHECK(files_in(folder) == 0);
  auto const report = json_of(minimax(run));
  REQUIRE(report["tiers"].size() == 3);
  CHECK(report["tiers"][1]["name"] == "pmem");
  CHECK(report["tiers"][1]["bytes_in"] > 0);
  CHECK(std::filesystem::exists(folder.file("pool")));
  run[7] = folder.file("absent");
  check_failure(minimax(run), 1, "its size must be given");
}

TEST_CASE("a plan is printed without reading a weight", "[runner]") {
  auto const text = minimax({"--plan", "--experts", "25%", "--ctx", "100"});
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("predicted peak") && ContainsSubstring("60 expert slots"));
  auto const report = json_of(minimax({"--plan", "--experts", "25%", "--json", "-"}));
  CHECK(report["plan"]["expert_slots"] == 60);
  CHECK(report["tiers"].empty());
}

TEST_CASE("a prompt beyond the context is refused, and generation ends where the context does",
          "[runner]") {
  check_failure(llama({"--prompt-ids", "5,6,7", "--ctx", "2"}), 1, "context of 2");
  check_failure(llama({"--prompt-ids", "5,6,7", "--ctx", "1000000"}), 1, "1000000");
  auto const done =
      llama({"--prompt-ids", "5,6,7", "-n", "9", "--ctx", "5", "--ignore-eos", "--json", "-"});
  CHECK(json_of(done)["ids"].size() == 3);
  CHECK_THAT(done.err, ContainsSubstring("context of 5 tokens is full"));
}

TEST_CASE("a reader that goes away is a failure with a sentence", "[runner]") {
  scratch_folder const folder;
  auto const script =
      fmt::format("{} -m {} -p x -n 40 --ignore-eos --json {} 2>{} | true; exit ${{PIPESTATUS[0]}}",
                  TERRACE_LLAMA,
                  golden::any_model("llama-tiny").string(),
                  folder.file("report.json"),
                  folder.file("stderr"));
  auto const done = program{"/bin/bash", {"-c", script}}.run();
  CHECK(done.status == 1);
  CHECK_THAT(bytes_of(folder.file("stderr")), ContainsSubstring("output could not be written"));
  CHECK(files_in(folder) == 1);
}

TEST_CASE("files that cannot be written are a failure, and none is left half done", "[runner]") {
  scratch_folder const folder;
  check_failure(llama({"-p", "x", "--logits", folder.file("no/l")}), 1, "no/l");
  check_failure(llama({"-p", "x", "--trace", folder.file("no/t")}), 1, "no/t");
  auto const full = llama({"-p", "x", "-n", "1", "--json", "/dev/full"});
  CHECK(full.status == 1);
  CHECK_THAT(full.err, ContainsSubstring("/dev/full"));
  auto const late =
      llama({"--prompt-ids", "99999999", "--logits", folder.file("l"), "--json", folder.file("j")});
  CHECK(late.status == 1);
  CHECK(files_in(folder) == 0);
}

TEST_CASE("sampling with a seed repeats itself", "[runner]") {
  auto const ids = [](char const* seed) {
    return json_of(llama({"-p",
                          "In the beginning",
                          "-n",
                          "12",
                          "--temp",
                          "1.2",
                          "--top-k",
                          "40",
                          "--seed",
                          seed,
                          "--ignore-eos",
                          "--json",
                          "-"}))["ids"];
  };
  CHECK(ids("7") == ids("7"));
  CHECK(ids("7") != ids("8"));
}

TEST_CASE("the benchmark prints one line per kind of work", "[runner]") {
  auto const done = llama({"--bench", "pp8,tg3", "-r", "2"});
  CHECK(done.status == 0);
  CHECK_THAT(done.out,
             ContainsSubstring("pp8") && ContainsSubstring("tg3") && ContainsSubstring("±"));
  auto const report = json_of(llama({"--bench", "pp8,tg3", "-r", "2", "--json", "-"}));
  CHECK(report["pp_tokens_per_s"] > 0);
  CHECK(report["tg_tokens_per_s"] > 0);
}

TEST_CASE("Ctrl-C ends generation cleanly: the text so far, the table and the report", "[runner]") {
  scratch_folder const folder;
  program run{TERRACE_LLAMA,
              {"-m",
               golden::any_model("llama-tiny").string(),
               "-p",
               "In the beginning",
               "-n",
               "2000",
               "--ignore-eos",
               "--json",
               folder.file("report.json")}};
  auto const done = run.interrupt_after(20);
  CHECK(done.status == 0);
  CHECK_THAT(done.err, ContainsSubstring("stopped by Ctrl-C") && ContainsSubstring("nvme"));
  auto const report = json::parse(bytes_of(folder.file("report.json")));
  CHECK(report["ids"].size() < 2000);
  CHECK(done.out == report["text"].get<std::string>() + "\n");
}

}  // namespace
}  // namespace terrace::runner::test
