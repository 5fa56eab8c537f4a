// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/json.hpp>
#include <terrace/tokenize/jinja/program.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

using namespace terrace::tokenize;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

std::string data(std::string const& name) {
  std::ifstream file{std::string{TERRACE_SOURCE_DIR} + "/tests/tokenize/data/" + name,
                     std::ios::binary};
  REQUIRE(file);
  return {std::istreambuf_iterator<char>{file}, {}};
}

std::string render(std::string const& source,
                   nlohmann::ordered_json const& variables = nlohmann::ordered_json::object()) {
  std::vector<std::pair<std::string, jinja::value>> given;
  for (auto const& [name, of] : variables.items()) {
    given.emplace_back(name, jinja::from_json(of));
  }
  return jinja::program{source}.render(std::move(given), 0);
}

void check(nlohmann::ordered_json const& expected,
           std::string const& source,
           nlohmann::ordered_json const& variables) {
  INFO(source);
  if (expected.contains("refused")) {
    CHECK_THROWS_AS(render(source, variables), terrace::error);
  } else {
    CHECK(render(source, variables) == expected.at("rendered").get<std::string>());
  }
}

}  // namespace

TEST_CASE("templates print what Jinja prints and fail where it fails", "[tokenize][jinja]") {
  auto const file = nlohmann::ordered_json::parse(data("jinja_cases.json"));
  REQUIRE(file.at("cases").size() > 300);
  for (auto const& one : file.at("cases")) {
    check(one, one.at("template").get<std::string>(), file.at("variables"));
  }
}

TEST_CASE(
    "templates in the style of Llama 3.1, SmolLM2, Kimi K2 Thinking and MiniMax-M2 render as under "
    "Jinja",
    "[tokenize][jinja]") {
  auto const file = nlohmann::ordered_json::parse(data("chats.json"));
  REQUIRE(file.at("chats").size() > 200);
  for (auto const& chat : file.at("chats")) {
    INFO(chat.at("variables").at("messages").dump());
    check(chat, data(chat.at("template").get<std::string>()), chat.at("variables"));
  }
}

TEST_CASE("what the subset leaves out is refused with its name and line", "[tokenize][jinja]") {
  auto const refused = [](std::string const& source, std::string const& words) {
    INFO(source);
    CHECK_THROWS_MATCHES(
        render("\n\n" + source, {{"s", "text"}, {"d", nlohmann::ordered_json::object()}}),
        terrace::not_supported,
        MessageMatches(ContainsSubstring(words) && ContainsSubstring("line 3")));
  };
  refused("{% include 'a' %}", "the statement `include`");
  refused("{% import 'a' as b %}", "the statement `import`");
  refused("{% for x in [] recursive %}{% endfor %}", "a recursive loop");
  refused("{{ s | wordwrap }}", "the filter `wordwrap`");
  refused("{{ s is escaped }}", "the test `escaped`");
  refused("{{ s.encode() }}", "`encode` of a string");
  refused("{{ d.pop('a') }}", "`pop` of a mapping");
  refused("{{ lipsum() }}", "`lipsum`");
  refused("{% for x in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}", "`loop.cycle`");
  refused("{{ '%s' % 1 }}", "formatting a string with `%`");
  refused("{{ f(*s) }}", "spreading arguments");
  refused("{{ {1: 2} }}", "a mapping whose key is a number");
}

TEST_CASE("broken templates are refused with the line", "[tokenize][jinja]") {
  auto const refused = [](std::string const& source, std::string const& words) {
    INFO(source);
    CHECK_THROWS_MATCHES(render(source),
                         terrace::format_error,
                         MessageMatches(ContainsSubstring(words) && ContainsSubstring("line ")));
  };
  refused("{% if true %}x", "ends before `endif`");
  refused("a\n{{ 1 + }}", "line 2: expected an expression where the end of the output stands");
  refused("{{ 'abc", "a string is not closed");
  refused("{{ 1", "a tag is not closed");
  refused("{# x", "a comment is not closed");
  refused("{% raw %}x", "a raw block is not closed");
  refused("{{ 1 ? 2 }}", "`?` is no part");
  refused("{{ (1 }}", "");
  refused("{% endfor %}", "`endfor` begins no statement");
  refused("{% break %}", "outside a loop");
  refused("{{ 99999999999999999999 }}", "too large");
  refused("{{ 9223372036854775807 + 1 }}", "does not fit 64 bits");
  refused("{{ x.y }}", "asked of `x`, which is undefined");
  refused("{% for x in 5 %}{% endfor %}", "cannot walk over a number");
  CHECK_THROWS_AS(jinja::program{"\xFF"}, terrace::format_error);
}

TEST_CASE("a hostile template ends", "[tokenize][jinja]") {
  std::string const deep(100'000, '(');
  std::string const chain = "{{ 1" + [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) { text += " + 1"; }
    return text;
  }() + " }}";
  for (std::string const& source : {
           std::string{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
           std::string{"{% for i in range(1000000000) %}{% endfor %}"},
           std::string{
               "{% for i in range(10000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}"},
           std::string{"{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% "
                       "set ns.s = ns.s ~ ns.s %}{% endfor %}"},
           std::string{"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = "
                       "[ns.l] %}{% endfor %}"},
           std::string{"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = "
                       "[ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l }}"},
           std::string{"{{ 'x' * 9000000000000000000 }}"},
           std::string{"{{ [1] * 9000000000000000000 }}"},
           std::string{"{% set a = 'x' * 1000000 %}{{ a.replace('x', a) }}"},
           std::string{"{% set a = 'x' * 1000000 %}{{ a.replace('', a) }}"},
           std::string{"{% set a = 'x' * 1000000 %}{{ (a | list) | join(a) }}"},
           std::string{"{{ ('\n' * 1000000) | indent(4096, blank=true) }}"},
           "{{ " + deep,
           "{{ " + std::string(100'000, '[') + " }}",
           "{{ " + std::string(100'000, '-') + "1 }}",
           chain,
       }) {
    INFO(source.substr(0, 100));
    CHECK_THROWS_AS(render(source), terrace::format_error);
  }
}

TEST_CASE("a namespace that holds itself and a macro that leaves its block are released",
          "[tokenize][jinja]") {
  CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me is "
               "defined }}") == "True");
  CHECK(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro "
               "%}{% set ns.m = m %}{% endfor %}"
               "{% set f = ns.m %}{{ f() }}") == "2");
}

TEST_CASE("only variables read before they are set count as used", "[tokenize][jinja]") {
  auto const uses = [](std::string const& source, std::string const& name) {
    return jinja::program{source}.uses_variable(name);
  };
  CHECK(uses("{% if thinking is defined and thinking %}x{% endif %}", "thinking"));
  CHECK_FALSE(uses("{% set thinking = true %}{{ thinking }}", "thinking"));
  CHECK(uses("{% set thinking = thinking | default(true) %}{{ thinking }}", "thinking"));
  CHECK(uses("{% if x %}{% set thinking = 1 %}{% endif %}{{ thinking }}", "thinking"));
  CHECK_FALSE(uses("{% for thinking in l %}{{ thinking }}{% endfor %}", "thinking"));
  CHECK_FALSE(uses("{{ message.thinking }} {{ 'thinking' }}", "thinking"));
  CHECK_FALSE(uses("{% macro m(thinking) %}{{ thinking }}{% endmacro %}{{ m(1) }}", "thinking"));
}

TEST_CASE("strftime_now shows the time it is given", "[tokenize][jinja]") {
  std::tm parts{};
  parts.tm_year = 124;
  parts.tm_mon = 6;
  parts.tm_mday = 26;
  parts.tm_hour = 12;
  parts.tm_isdst = -1;
  std::time_t const noon = std::mktime(&parts);
  CHECK(jinja::program{"{{ strftime_now('%d %b %Y') }}"}.render({}, noon) == "26 Jul 2024");
}
