// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "tiers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using terrace::not_supported;
using terrace::runner::options;
using terrace::runner::parse_command_line;
using terrace::runner::usage_error;

namespace {

options parse(std::vector<char const*> arguments) {
  arguments.insert(arguments.begin(), "terrace-test");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}
/// With a model and a prompt, which most options need.
options parse_run(std::vector<char const*> arguments) {
  arguments.insert(arguments.begin(), {"-m", "model.gguf", "-p", "text"});
  return parse(arguments);
}

}  // namespace

TEST_CASE("a model and a prompt are enough, and the defaults are the documented ones", "[runner]") {
  auto const read = parse_run({});
  CHECK(read.model == "model.gguf");
  CHECK(read.prompt.text == "text");
  CHECK(read.tokens == 64);
  CHECK(read.sampler.temperature == 0.0F);
  CHECK(read.mode == terrace::numerics::fast);
  CHECK(!read.half_kv);
  CHECK(read.chain.name == "dram-nvme");
}

TEST_CASE("every option of the contract reaches its field", "[runner]") {
  auto const read = parse_run({"-n",
                               "7",
                               "--ignore-eos",
                               "--temp",
                               "0.5",
                               "--top-k",
                               "3",
                               "--top-p",
                               "0.9",
                               "--min-p",
                               "0.1",
                               "--seed",
                               "18446744073709551615",
                               "--ctx",
                               "128",
                               "--threads",
                               "3",
                               "--backend",
                               "cpu",
                               "--numerics",
                               "exact",
                               "--chain",
                               "dram-pmem-nvme",
                               "--dram",
                               "1GiB",
                               "--pmem",
                               "/tmp/a:b:2GiB",
                               "--place",
                               "blk\\.[0-3]\\.=dram:pin",
                               "--place",
                               "x{1,2}=pmem",
                               "--dispatch",
                               "host",
                               "--experts",
                               "25%",
                               "--evict",
                               "lru",
                               "--prefetch",
                               "trace_markov",
                               "--kv",
                               "f32",
                               "--json",
                               "-",
                               "--logits",
                               "l",
                               "--routing",
                               "r",
                               "--trace",
                               "t"});
  CHECK(read.tokens == 7);
  CHECK(read.ignore_eos);
  CHECK(read.sampler.temperature == 0.5F);
  CHECK(read.sampler.top_k == 3);
  CHECK(read.sampler.top_p == 0.9F);
  CHECK(read.sampler.min_p == 0.1F);
  CHECK(read.sampler.seed == UINT64_MAX);
  CHECK(read.context == 128);
  CHECK(read.threads == 3);
  CHECK(read.mode == terrace::numerics::exact);
  CHECK(read.chain.name == "dram-pmem-nvme");
  CHECK(read.chain.dram->bytes(0) == std::uint64_t{1} << 30U);
  CHECK(read.chain.pmem->path == "/tmp/a:b");
  CHECK(read.chain.pmem->size->bytes(0) == std::uint64_t{2} << 30U);
  CHECK(read.chain.place == std::vector<std::string>{"blk\\.[0-3]\\.=dram:pin", "x{1,2}=pmem"});
  CHECK(read.chain.experts->slots(48) == 12);
  CHECK(read.chain.evict == "lru");
  CHECK(read.chain.prefetch == "trace_markov");
  CHECK(read.half_kv == false);
  CHECK(read.output.json == "-");
  CHECK(read.output.logits == "l");
  CHECK(read.output.routing == "r");
  CHECK(read.output.trace == "t");
}

TEST_CASE("prompts are taken as they are", "[runner]") {
  CHECK(parse({"-m", "m", "-p", ""}).prompt.text == "");
  CHECK(parse({"-m", "m", "-p", "-n"}).prompt.text == "-n");
  CHECK(parse({"-m", "m", "-p", "--help"}).prompt.text == "--help");
  CHECK(parse({"-m", "m", "-p", "[a,b] {c}\\n\"d\" # %%"}).prompt.text == "[a,b] {c}\\n\"d\" # %%");
  CHECK(parse({"-m", "m", "-p", "[a,b]"}).prompt.text == "[a,b]");
  CHECK(parse({"-m", "m", "--prompt=a=b"}).prompt.text == "a=b");
  CHECK(parse({"-m", "m", "--prompt-ids", "1, 2,3"}).prompt.ids ==
        std::vector<std::int32_t>{1, 2, 3});
  CHECK(parse({"-m", "m", "--prompt-file", "-"}).prompt.file == "-");
  auto const chat =
      parse({"-m", "m", "--chat", "--system", "be brief", "--thinking", "off", "-p", "hi"});
  CHECK(chat.prompt.chat);
  CHECK(chat.prompt.system == "be brief");
  CHECK(chat.prompt.thinking == false);
}

TEST_CASE("numbers must be whole, in decimal and in range", "[runner]") {
  for (char const* text : {"", "1e3", "0x10", " 7", "7 ", "-1", "1.5", "99999999999", "seven"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_run({"-n", text}), usage_error);
  }
  CHECK(parse_run({"-n", "010"}).tokens == 10);
  CHECK(parse_run({"-n", "0"}).tokens == 0);
  CHECK_THROWS_AS(parse_run({"--ctx", "0"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--threads", "0"}), usage_error);
  for (char const* text : {"nan", "inf", "-0.1", "hot", ""}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_run({"--temp", text}), usage_error);
    CHECK_THROWS_AS(parse_run({"--temp", "1", "--top-p", text}), usage_error);
  }
  CHECK_THROWS_AS(parse_run({"--temp", "1", "--top-p", "0"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--temp", "1", "--min-p", "1.1"}), usage_error);
  for (char const* text : {"", "1,", ",1", "1,,2", "a", "-1", "1;2", "4294967296"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse({"-m", "m", "--prompt-ids", text}), usage_error);
  }
}

TEST_CASE("sizes are bytes, shares or all", "[runner]") {
  auto const dram = [](char const* text) {
    return parse_run({"--dram", text}).chain.dram->bytes(1000);
  };
  CHECK(dram("64KiB") == 65536);
  CHECK(dram("12.5%") == 125);
  CHECK(dram("100%") == 1000);
  CHECK(dram("all") == 1000);
  for (char const* text :
       {"", "0", "0%", "101%", "-1%", "nan%", "nan", "-5", "12 parsecs", "%", "ALL", "1e300GiB"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_run({"--dram", text}), usage_error);
  }
}

TEST_CASE("expert slots are a count or a share that is rounded down", "[runner]") {
  auto const slots = [](char const* text) {
    return parse_run({"--experts", text}).chain.experts->slots(100);
  };
  CHECK(slots("7") == 7);
  CHECK(slots("29%") == 29);
  CHECK(slots("10.9%") == 10);
  for (char const* text : {"", "7.5", "-1", "101%", "few", "1 "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_run({"--experts", text}), usage_error);
  }
}

TEST_CASE("unknown options, missing values, repeated options and stray words are usage errors",
          "[runner]") {
  CHECK_THROWS_WITH(parse_run({"--fast"}), ContainsSubstring("--fast"));
  CHECK_THROWS_AS(parse_run({"--fast"}), usage_error);
  CHECK_THROWS_AS(parse_run({"-n"}), usage_error);
  CHECK_THROWS_AS(parse_run({"-n", "1", "-n", "2"}), usage_error);
  CHECK_THROWS_AS(parse_run({"word"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--numerics", "exakt"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--chain", "tape"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--evict", "random"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--bench", "pp0"}), usage_error);
  CHECK_THROWS_AS(parse({"-p", "x"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "", "-p", "x"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m"}), usage_error);
}

TEST_CASE("options that contradict each other are usage errors", "[runner]") {
  CHECK_THROWS_WITH(parse_run({"--prompt-ids", "1"}), ContainsSubstring("more than one prompt"));
  CHECK_THROWS_AS(parse_run({"--prompt-file", "f"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--messages", "f"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--prompt-ids", "1", "--chat"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--chat"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--messages", "f", "--system", "s"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--nll", "a", "--nll-ids", "b"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--bench", "pp8"}), usage_error);
  CHECK_THROWS_WITH(parse_run({"--json", "out", "--logits", "./out"}),
                    ContainsSubstring("two outputs"));
  CHECK_THROWS_AS(parse_run({"--plan", "--logits", "f"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--chain", "dram-pmem-nvme"}), usage_error);
}

TEST_CASE("options that others leave without effect are usage errors", "[runner]") {
  CHECK_THROWS_WITH(parse_run({"--seed", "1"}), ContainsSubstring("--seed has no effect"));
  CHECK_THROWS_AS(parse_run({"--top-k", "1"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--temp", "0", "--top-p", "0.5"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--min-p", "0.5"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--system", "s"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--thinking", "on"}), usage_error);
  CHECK_THROWS_AS(parse_run({"-r", "3"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--pmem", "f"}), usage_error);
  CHECK_THROWS_AS(parse_run({"--chain", "pmem-nvme", "--pmem", "f", "--dram", "1GiB"}),
                  usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--nll", "f", "-n", "3"}), usage_error);
  CHECK_THROWS_AS(parse({"-m", "m", "--nll", "f", "--logits", "l"}), usage_error);
}

TEST_CASE("options of later versions are refused by a sentence that says so", "[runner]") {
  for (std::vector<char const*> const& arguments :
       std::vector<std::vector<char const*>>{{"--nvme", "/a,/b"},
                                             {"--draft", "d.gguf"},
                                             {"--backend", "kokkos"},
                                             {"--kv", "q8"},
                                             {"--kv", "tq3"}}) {
    CAPTURE(arguments.front(), arguments.back());
    CHECK_THROWS_WITH(parse_run(arguments), ContainsSubstring("later one"));
    CHECK_THROWS_AS(parse_run(arguments), not_supported);
  }
  CHECK_THROWS_WITH(parse_run({"--evict", "oracle"}), ContainsSubstring("terrace-replay"));
  CHECK(parse({"-m", "m", "--plan"}).plan_only);
}

TEST_CASE("options of a device are refused by a build without CUDA", "[runner]") {
  if (terrace::runner::has_cuda) { SKIP("this build has CUDA"); }
  for (std::vector<char const*> const& arguments :
       std::vector<std::vector<char const*>>{{"--vram", "8GiB"},
                                             {"--pinned", "8GiB"},
                                             {"--unified", "8GiB"},
                                             {"--backend", "cuda"},
                                             {"--chain", "vram-nvme"},
                                             {"--chain", "unified-pinned-nvme"}}) {
    CAPTURE(arguments.front(), arguments.back());
    CHECK_THROWS_WITH(parse_run(arguments), ContainsSubstring("this build has no CUDA"));
    CHECK_THROWS_AS(parse_run(arguments), not_supported);
  }
}

TEST_CASE("on the host every expert is computed there", "[runner]") {
  CHECK(parse_run({"--dispatch", "host"}).dispatch == "host");
  for (char const* how : {"device", "auto", "min-batch:4"}) {
    CAPTURE(how);
    CHECK_THROWS_WITH(parse_run({"--dispatch", how}),
                      ContainsSubstring("--dispatch has no effect"));
    CHECK_THROWS_AS(parse_run({"--dispatch", how}), usage_error);
  }
  for (char const* how : {"moon", "min-batch:0", "min-batch:", "min-batch:x"}) {
    CAPTURE(how);
    CHECK_THROWS_AS(parse_run({"--dispatch", how}), usage_error);
  }
  CHECK_THROWS_AS(parse_run({"--device", "0"}), usage_error);
}

TEST_CASE("modes that need no prompt run without one", "[runner]") {
  CHECK(parse({"--list-chains"}).list_chains);
  CHECK(parse({"--help"}).help);
  CHECK(parse({"-m", "m", "--nll-ids", "f"}).nll_ids == "f");
  auto const bench = parse({"-m", "m", "--bench", "pp512,tg128", "-r", "3"});
  REQUIRE(bench.bench.size() == 2);
  CHECK(bench.bench[0].prefill);
  CHECK(bench.bench[0].tokens == 512);
  CHECK(!bench.bench[1].prefill);
  CHECK(bench.bench[1].tokens == 128);
  CHECK(bench.repetitions == 3);
  CHECK(parse({"-m", "m", "--nll", "f", "-p", "x", "-n", "2"}).tokens == 2);
}
