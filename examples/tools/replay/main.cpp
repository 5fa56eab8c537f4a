// SPDX-License-Identifier: Apache-2.0
// terrace-replay: what every eviction and prefetch policy makes of a recorded routing trace, beside
// what an oracle could.
#include "output_file.hpp"
#include "replay.hpp"
#include "sizes.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/evict/oracle.hpp>
#include <terrace/observe/routing_trace.hpp>
#include <terrace/prefetch/any.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::replay {
namespace {

constexpr std::string_view gate_needs_hints =
    "gate_lookahead lives on the routers' hints, which routing traces do not carry";

/// The command line asks for something that cannot be meant; exit status 2.
class usage_error : public error {
 public:
  using error::error;
};

struct request {
  std::string trace;
  std::vector<std::string> capacities;
  std::vector<std::string> evict;
  std::vector<std::string> prefetch;
  std::string json;
};

struct row {
  std::size_t capacity_blocks = 0;
  std::string evict;
  std::string prefetch;
  outcome result;
  outcome oracle;

  /// Hits per hit of the oracle, which fetches nothing ahead: prefetching may exceed 1.
  [[nodiscard]] double oracle_ratio() const noexcept {
    return oracle.hits == 0 ? 0
                            : static_cast<double>(result.hits) / static_cast<double>(oracle.hits);
  }
};

struct report {
  observe::routing_trace const& trace;
  std::vector<row> rows;
  std::vector<std::string> skipped;

  [[nodiscard]] std::size_t blocks() const noexcept {
    return std::size_t{trace.layers} * trace.experts;
  }
  [[nodiscard]] double percent(std::size_t capacity_blocks) const noexcept {
    return 100.0 * static_cast<double>(capacity_blocks) / static_cast<double>(blocks());
  }
};

void check_names(request& asked) {
  std::vector<std::string_view> evictors{evict::any::names.begin(), evict::any::names.end()};
  evictors.push_back("oracle");
  if (asked.evict.empty()) { asked.evict.assign(evictors.begin(), evictors.end()); }
  for (auto const& name : asked.evict) {
    if (std::find(evictors.begin(), evictors.end(), name) != evictors.end()) { continue; }
    throw usage_error{"--evict: there is no eviction policy named `" + name + "`; choose " +
                      list_of(evictors)};
  }
  if (asked.prefetch.empty()) { asked.prefetch = {"none", "trace_markov"}; }
  for (auto const& name : asked.prefetch) {
    auto const& known = prefetch::any::names;
    if (name == "gate_lookahead") {
      throw usage_error{"--prefetch: " + std::string{gate_needs_hints} +
                        "; choose none or trace_markov"};
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) { continue; }
    throw usage_error{"--prefetch: there is no prefetch policy named `" + name +
                      "`; choose none or trace_markov"};
  }
}

/// Nothing if the command line asked for help, which has been printed.
std::optional<request> parse(int argc, char const* const* argv) {
  request asked;
  CLI::App app{
      "Replays a routing trace (see --routing of the runners) through eviction and prefetch "
      "policies.",
      "terrace-replay"};
  app.add_option("TRACE", asked.trace, "Routing trace")->required();
  app.add_option("--capacity",
                 asked.capacities,
                 "Expert slots, N or N% of all (layer, expert) blocks; several with commas "
                 "(5%,10%,20%,30%,50%)")
      ->delimiter(',');
  app.add_option(
         "--evict", asked.evict, "Eviction policies, several with commas (all, and the oracle)")
      ->delimiter(',');
  app.add_option(
         "--prefetch", asked.prefetch, "Prefetch policies, several with commas (none,trace_markov)")
      ->delimiter(',');
  app.add_option(
      "--json", asked.json, "Write the table as JSON to a file, or to standard output with -");
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (CLI::ParseError const& refused) {
    throw usage_error{std::string{refused.what()} + "; see --help"};
  }
  check_names(asked);
  return asked;
}

/// The slots asked for, rising and distinct. Of the default shares, those below one set are left
/// out.
std::vector<std::size_t> capacities(request const& asked, report& to) {
  bool const chosen = !asked.capacities.empty();
  std::vector<std::string> const defaults{"5%", "10%", "20%", "30%", "50%"};
  std::vector<std::size_t> slots;
  for (auto const& text : chosen ? asked.capacities : defaults) {
    auto const read = runner::slot_request::parse(text);
    if (!read) {
      throw usage_error{"--capacity: `" + text +
                        "` is neither a number of slots nor a share up to 100%; write 64 or 10%"};
    }
    std::size_t const count = read->slots(to.blocks());
    if (count >= to.trace.top_k) {
      slots.push_back(count);
      continue;
    }
    std::string const too_small =
        fmt::format("{} is {} of {} slots, but a layer asks for {} experts at once",
                    text,
                    count,
                    to.blocks(),
                    to.trace.top_k);
    if (chosen) {
      throw out_of_capacity{
          fmt::format(
              "--capacity: {}; the smallest value that works is {}", too_small, to.trace.top_k),
          to.trace.top_k,
          count};
    }
    to.skipped.push_back("capacity " + too_small);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

/// A level that evicts nothing needs a set's worth of slots for blocks that pass through.
outcome run(observe::routing_trace const& trace,
            std::size_t slots,
            std::string const& evict,
            std::string const& prefetch) {
  std::size_t const kept = evict == "pinned" ? slots - trace.top_k : slots;
  return simulation{trace, kept, evict::any{{evict}}, prefetch::any{{prefetch}}}.run();
}

void fill(request const& asked, report& to) {
  auto const future = requests_of(to.trace);
  for (std::size_t const slots : capacities(asked, to)) {
    auto const oracle =
        simulation{to.trace, slots, evict::oracle{{future}}, prefetch::none{}}.run();
    for (auto const& evict : asked.evict) {
      if (evict == "oracle") {  // it is told uses, not reads ahead of them
        to.rows.push_back({slots, evict, "none", oracle, oracle});
        continue;
      }
      for (auto const& prefetch : asked.prefetch) {
        to.rows.push_back({slots, evict, prefetch, run(to.trace, slots, evict, prefetch), oracle});
      }
    }
  }
}

void print(report const& from) {
  auto const& trace = from.trace;
  fmt::print(
      "{} tokens, {} layers from layer {} on, top-{} of {} experts: {} blocks, {} asked for per "
      "token\n\n",
      trace.tokens.size(),
      trace.layers,
      trace.first_layer,
      trace.top_k,
      trace.experts,
      from.blocks(),
      trace.layers * trace.top_k);
  fmt::print("{:>8}  {:>7}  {:<10}  {:<12}  {:>8}  {:>9}  {:>10}  {:>10}  {:>10}\n",
             "slots",
             "share",
             "evict",
             "prefetch",
             "hit rate",
             "of oracle",
             "prefetched",
             "used",
             "wasted");
  for (row const& each : from.rows) {
    auto const& result = each.result;
    fmt::print(
        "{:>8}  {:>5.1f} %  {:<10}  {:<12}  {:>6.2f} %  {:>7.1f} %  {:>10}  {:>10}  {:>10}\n",
        each.capacity_blocks,
        from.percent(each.capacity_blocks),
        each.evict,
        each.prefetch,
        100 * result.hit_rate(),
        100 * each.oracle_ratio(),
        result.prefetched,
        result.prefetch_used,
        result.prefetch_wasted);
  }
  fmt::print("\npinned keeps the first blocks and {} slots for those that pass through\n",
             trace.top_k);
  for (auto const& each : from.skipped) { fmt::print("skipped: {}\n", each); }
}

nlohmann::ordered_json to_json(report const& from, std::string const& path) {
  auto const& trace = from.trace;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (row const& each : from.rows) {
    auto const& result = each.result;
    rows.push_back({{"capacity_blocks", each.capacity_blocks},
                    {"capacity_percent", from.percent(each.capacity_blocks)},
                    {"evict", each.evict},
                    {"prefetch", each.prefetch},
                    {"hits", result.hits},
                    {"misses", result.misses},
                    {"hit_rate", result.hit_rate()},
                    {"oracle_hit_rate", each.oracle.hit_rate()},
                    {"oracle_ratio", each.oracle_ratio()},
                    {"prefetched", result.prefetched},
                    {"prefetch_used", result.prefetch_used},
                    {"prefetch_wasted", result.prefetch_wasted}});
  }
  return {{"trace", path},
          {"tokens", trace.tokens.size()},
          {"layers", trace.layers},
          {"top_k", trace.top_k},
          {"experts", trace.experts},
          {"first_layer", trace.first_layer},
          {"skipped", from.skipped},
          {"rows", std::move(rows)}};
}

int replay(int argc, char const* const* argv) {
  auto const asked = parse(argc, argv);
  if (!asked) { return 0; }
  auto const trace = observe::read_routing_trace(asked->trace);
  bool const to_stdout = asked->json == "-";
  std::optional<runner::output_file> file;
  if (!asked->json.empty() && !to_stdout) { file.emplace(asked->json); }

  report result{trace, {}, {"prefetch " + std::string{gate_needs_hints}}};
  fill(*asked, result);
  if (!to_stdout) { print(result); }
  if (!asked->json.empty()) {
    // A path need not be UTF-8; JSON must.
    auto const text = to_json(result, asked->trace)
                          .dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                      "\n";
    if (file) {
      file->write(text);
      file->commit();
    } else {
      fmt::print("{}", text);
    }
  }
  if (std::fflush(stdout) != 0) {
    throw io_error{"standard output cannot be written; check where it goes", errno};
  }
  return 0;
}

}  // namespace
}  // namespace terrace::replay

int main(int argc, char** argv) {
  try {
    return terrace::replay::replay(argc, argv);
  } catch (terrace::replay::usage_error const& refused) {
    fmt::print(stderr, "terrace-replay: {}\n", refused.what());
    return 2;
  } catch (std::exception const& failed) {
    fmt::print(stderr, "terrace-replay: {}\n", failed.what());
    return 1;
  }
}
