// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/named_choice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::placement {

/// Where a rule puts a block.
struct placed {
  std::string tier;
  bool pin = false;  ///< stays there: never evicted
  friend bool operator==(placed const&, placed const&) = default;
};

namespace detail {

inline constexpr std::size_t most_pattern_bytes = 1024;
inline constexpr std::size_t most_name_bytes = 256;
inline constexpr std::uint64_t most_expanded = 4096;

/// Pattern length times every `{n}` in it: a bound on what the matcher builds, and so on how deep
/// it recurses.
[[nodiscard]] inline std::uint64_t expanded_length(std::string_view pattern) noexcept {
  std::uint64_t length = pattern.size();
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '\\') {
      ++at;
    } else if (pattern[at] == '{') {
      std::uint64_t largest = 1;
      std::uint64_t count = 0;
      while (++at < pattern.size() && pattern[at] != '}') {
        bool const digit = pattern[at] >= '0' && pattern[at] <= '9';
        count = digit ? std::min(count * 10 + static_cast<std::uint64_t>(pattern[at] - '0'),
                                 most_expanded + 1)
                      : 0;
        largest = std::max(largest, count);
      }
      length = std::min(length * largest, most_expanded + 1);
    }
  }
  return length;
}

[[nodiscard]] inline std::regex compile(std::string const& pattern, std::string const& rule) {
  auto const refuse = [&rule](std::string const& why) {
    return contract_error{"placement rule `" + rule.substr(0, 80) + "`: " + why};
  };
  if (pattern.size() > most_pattern_bytes) {
    throw refuse("the regular expression has " + std::to_string(pattern.size()) +
                 " bytes; use at most " + std::to_string(most_pattern_bytes));
  }
  if (expanded_length(pattern) > most_expanded) {
    throw refuse("its counted repetitions expand to more than " + std::to_string(most_expanded) +
                 " states; use smaller counts, or `*` and `+`");
  }
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#if defined(__GLIBCXX__)
  flags |= std::regex_constants::__polynomial;  // breadth first: no pattern takes exponential time
#endif
  try {
    return std::regex{pattern, flags};
  } catch (std::regex_error const& broken) {
    bool const back_reference = broken.code() == std::regex_constants::error_complexity;
    throw refuse(back_reference
                     ? std::string{"back references are not supported; write the alternatives out"}
                     : std::string{"the regular expression is not valid ECMAScript ("} +
                           broken.what() + "); escape literal dots and brackets with `\\`");
  }
}

}  // namespace detail

/// Rules `REGEX=TIER` or `REGEX=TIER:pin` that say which tier a block lives in; the first rule that
/// matches wins.
///
/// A rule matches a block if the regular expression (ECMAScript) is found anywhere in the name of
/// one of the block's tensors ("blk.3.ffn_gate_exps.weight"), as with llama.cpp's `-ot`. The rule
/// is split at its last `=`.
/// Errors: contract_error quoting the rule for a missing part, an unknown tier or suffix, or an expression that is not
///         valid or too large; format_error for a tensor name above 256 bytes.
/// Cost:   one search per rule and distinct name; answers are remembered per name.
class rules {
 public:
  rules() = default;

  /// `tiers` are the names a rule may use; empty allows any.
  [[nodiscard]] static rules parse(std::span<std::string const> texts,
                                   std::span<std::string_view const> tiers = {}) {
    rules parsed;
    for (std::string const& text : texts) { parsed.rules_.push_back(parse_one(text, tiers)); }
    return parsed;
  }

  [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }

  /// Where the first matching rule puts `block`; nothing if none matches. Counts for `unused`.
  [[nodiscard]] std::optional<placed> place(block_info const& block) {
    std::size_t first = rules_.size();
    for (std::string const& name : block.names) { first = std::min(first, first_match(name)); }
    if (first == rules_.size()) { return std::nullopt; }
    rules_[first].used = true;
    return rules_[first].target;
  }

  /// The rules, as given, that have placed no block so far: they match nothing, or an earlier rule
  /// took it all.
  [[nodiscard]] std::vector<std::string> unused() const {
    std::vector<std::string> texts;
    for (rule const& each : rules_) {
      if (!each.used) { texts.push_back(each.text); }
    }
    return texts;
  }

 private:
  struct rule {
    std::string text;
    std::regex pattern;
    placed target;
    bool used = false;
  };

  [[nodiscard]] static rule parse_one(std::string const& text,
                                      std::span<std::string_view const> tiers) {
    auto const refuse = [&text](std::string const& why) {
      return contract_error{"placement rule `" + text.substr(0, 80) + "`: " + why};
    };
    std::size_t const equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      throw refuse("expected REGEX=TIER or REGEX=TIER:pin");
    }
    std::string tier = text.substr(equals + 1);
    bool pin = false;
    if (std::size_t const colon = tier.find(':'); colon != std::string::npos) {
      if (tier.substr(colon) != ":pin") {
        throw refuse("the suffix `" + tier.substr(colon) + "` is unknown; the only one is `:pin`");
      }
      pin = true;
      tier.resize(colon);
    }
    if (tier.empty()) {
      throw refuse("the tier is missing; expected REGEX=TIER or REGEX=TIER:pin");
    }
    if (!tiers.empty() && std::find(tiers.begin(), tiers.end(), tier) == tiers.end()) {
      throw refuse("this chain has no tier `" + tier + "`; use " + list_of(tiers));
    }
    return {text, detail::compile(text.substr(0, equals), text), {std::move(tier), pin}, false};
  }

  /// Index of the first rule found in `name`, or the number of rules.
  [[nodiscard]] std::size_t first_match(std::string const& name) {
    if (name.size() > detail::most_name_bytes) {
      throw format_error{"the tensor name `" + name.substr(0, 64) + "...` has " +
                         std::to_string(name.size()) +
                         " bytes; placement rules take names of at most " +
                         std::to_string(detail::most_name_bytes)};
    }
    auto const known = matches_.find(name);
    if (known != matches_.end()) { return known->second; }
    std::size_t first = 0;
    while (first < rules_.size() && !found(rules_[first], name)) { ++first; }
    matches_.emplace(name, first);
    return first;
  }

  [[nodiscard]] static bool found(rule const& each, std::string const& name) {
    try {
      return std::regex_search(name, each.pattern);
    } catch (std::regex_error const&) {  // some standard libraries give up on a hard search
      throw contract_error{"placement rule `" + each.text.substr(0, 80) + "`: matching `" + name +
                           "` takes too long; write a simpler regular expression"};
    }
  }

  std::vector<rule> rules_;
  std::map<std::string, std::size_t, std::less<>>
      matches_;  ///< experts of a layer share their tensors' names
};

}  // namespace terrace::placement
