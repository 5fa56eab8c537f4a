// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/detail/byte_letters.hpp>
#include <terrace/tokenize/detail/json_file.hpp>
#include <terrace/tokenize/detail/merge_rules.hpp>
#include <terrace/tokenize/tokenizer_parts.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize::detail {

/// Ids of one file: each a whole number, used once, and not so large that the gaps would cost more
/// than the pieces.
class id_book {
 public:
  id_book(std::string source, std::size_t tokens)
      : source_{std::move(source)}, taken_(2 * tokens + 65'536) {}

  [[nodiscard]] token_id check(nlohmann::json const& id, std::string const& text) const {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::uint64_t>() >=
            std::min<std::uint64_t>(taken_.size(), std::numeric_limits<token_id>::max())) {
      throw format_error{source_ + ": the token `" + text + "` has the id " + id.dump() +
                         "; expected a whole number below " + std::to_string(taken_.size())};
    }
    return id.get<token_id>();
  }
  [[nodiscard]] token_id take(nlohmann::json const& id, std::string const& text) {
    token_id const number = check(id, text);
    if (taken_[static_cast<std::size_t>(number)]) {
      throw format_error{source_ + ": the id " + std::to_string(number) +
                         " is used twice, the second time by `" + text + "`"};
    }
    taken_[static_cast<std::size_t>(number)] = true;
    return number;
  }

 private:
  std::string source_;
  std::vector<bool> taken_;
};

/// One entry of `added_tokens` or `added_tokens_decoder`.
inline void set_added_token(vocabulary& pieces,
                            token_id id,
                            nlohmann::json const& entry,
                            std::string const& source) {
  auto const content = text_member(entry, "content");
  if (!content || content->empty()) {
    throw format_error{source + ": the added token " + std::to_string(id) + " has no `content`"};
  }
  for (auto const* key : {"single_word", "lstrip", "rstrip"}) {
    if (flag(entry, key, false)) {
      throw not_supported{source + ": the added token `" + *content + "` sets `" + key +
                          "`, which terrace does not implement"};
    }
  }
  pieces.set(
      id, *content, flag(entry, "special", false) ? token_type::control : token_type::user_defined);
}

[[nodiscard]] inline vocabulary read_vocabulary(nlohmann::json const& root,
                                                std::string const& source) {
  auto const& entries = member(member(root, "model"), "vocab");
  auto const& added = member(root, "added_tokens");
  if (!entries.is_object() || entries.empty()) {
    throw format_error{source + ": `model.vocab` is missing or empty"};
  }
  if (!added.is_array() && !added.is_null()) {
    throw format_error{source + ": `added_tokens` is not an array"};
  }
  id_book book{source, entries.size() + added.size()};
  vocabulary pieces;
  for (auto const& [text, id] : entries.items()) {
    pieces.set(book.take(id, text), ordinary_bytes(text), token_type::normal);
  }
  for (auto const& entry : added) {
    set_added_token(pieces,
                    book.check(member(entry, "id"), text_member(entry, "content").value_or("")),
                    entry,
                    source);
  }
  pieces.finish();
  return pieces;
}

/// Appends the regexes that one node of `pre_tokenizer` splits by, and notes whether bytes become
/// letters.
inline void read_pre_tokenizer(nlohmann::json const& node,
                               std::string const& source,
                               std::vector<std::string>& regexes,
                               bool& byte_level) {
  std::string const type = text_member(node, "type").value_or("none");
  auto const refuse = [&](std::string const& what) {
    throw not_supported{source + ": the pre-tokenizer " + type + " " + what + " is not supported"};
  };
  if (type == "Sequence") {
    for (auto const& inner : member(node, "pretokenizers")) {
      if (text_member(inner, "type") == "Sequence") { refuse("inside another"); }
      read_pre_tokenizer(inner, source, regexes, byte_level);
    }
  } else if (type == "Split") {
    auto const regex = text_member(member(node, "pattern"), "Regex");
    std::string const behaviour = text_member(node, "behavior").value_or("");
    bool const keeps_all =
        behaviour == "Isolated" || (behaviour == "Removed" && flag(node, "invert", false));
    if (!regex || !keeps_all) { refuse("with this pattern or behavior (" + node.dump() + ")"); }
    regexes.push_back(*regex);
  } else if (type == "Digits") {
    if (!flag(node, "individual_digits", false)) { refuse("without individual_digits"); }
    regexes.emplace_back(R"(\p{N})");
  } else if (type == "ByteLevel") {
    if (flag(node, "add_prefix_space", true)) { refuse("with add_prefix_space"); }
    if (flag(node, "use_regex", true)) { regexes.emplace_back(gpt2_regex); }
    byte_level = true;
  } else {
    refuse("(terrace reads byte-level BPE)");
  }
}

[[nodiscard]] inline pre_tokenizer_family const& json_family(nlohmann::json const& root,
                                                             std::string const& source) {
  std::vector<std::string> regexes;
  bool byte_level = false;
  read_pre_tokenizer(member(root, "pre_tokenizer"), source, regexes, byte_level);
  pre_tokenizer_family const* family = nullptr;
  if (byte_level && regexes.size() <= 2) {
    regexes.resize(2);
    family = find_family(std::array<std::string_view, 2>{regexes[0], regexes[1]});
  }
  if (family == nullptr) {
    throw not_supported{source +
                        ": terrace does not know the way this pre-tokenizer splits text: " +
                        member(root, "pre_tokenizer").dump()};
  }
  return *family;
}

/// Whether the normaliser is NFC; none is fine, any other is refused.
[[nodiscard]] inline bool reads_nfc(nlohmann::json const& normalizer, std::string const& source) {
  if (normalizer.is_null()) { return false; }
  if (text_member(normalizer, "type") == "NFC") { return true; }
  auto const& steps = member(normalizer, "normalizers");
  if (text_member(normalizer, "type") == "Sequence" && steps.is_array()) {
    bool nfc = false;
    for (auto const& step : steps) {
      if (text_member(step, "type") != "NFC") {
        throw not_supported{source + ": the normalizer " + step.dump() + " is not supported"};
      }
      nfc = true;
    }
    return nfc;
  }
  throw not_supported{source + ": the normalizer " + normalizer.dump() +
                      " is not supported; terrace knows NFC"};
}

inline void check_model(nlohmann::json const& model, std::string const& source) {
  if (text_member(model, "type").value_or("BPE") != "BPE") {
    throw not_supported{source + ": the tokenizer model " + member(model, "type").dump() +
                        " is not supported; terrace reads BPE"};
  }
  for (auto const* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
    auto const& value = member(model, key);
    bool const off = value.is_null() || value == "" || value == 0.0;
    if (!off) {
      throw not_supported{source + ": `model." + key + "` is " + value.dump() +
                          ", which terrace does not implement"};
    }
  }
  if (flag(model, "byte_fallback", false)) {
    throw not_supported{source + ": `model.byte_fallback` is not supported"};
  }
}

[[nodiscard]] inline std::vector<bpe_merge> read_merges(nlohmann::json const& rules,
                                                        vocabulary const& pieces,
                                                        std::string const& source) {
  if (!rules.is_array()) {
    throw format_error{source + ": `model.merges` is missing or not an array"};
  }
  std::vector<bpe_merge> merges;
  merges.reserve(rules.size());
  for (auto const& rule : rules) {
    std::size_t const number = merges.size();
    if (rule.is_string()) {
      merges.push_back(resolve_merge(pieces, rule.get_ref<std::string const&>(), number, source));
    } else if (rule.is_array() && rule.size() == 2 && rule[0].is_string() && rule[1].is_string()) {
      merges.push_back(resolve_merge(pieces,
                                     rule[0].get_ref<std::string const&>(),
                                     rule[1].get_ref<std::string const&>(),
                                     number,
                                     source));
    } else {
      throw format_error{source + ": merge " + std::to_string(number) + " is " + rule.dump() +
                         R"(; expected "a b" or ["a", "b"])"};
    }
  }
  return merges;
}

/// The token that `post_processor` puts in front of every text, if it does.
[[nodiscard]] inline std::optional<std::string> leading_token(nlohmann::json const& processor) {
  for (auto const& inner : member(processor, "processors")) {
    if (auto const found = leading_token(inner)) { return found; }
  }
  auto const& single = member(processor, "single");
  if (text_member(processor, "type") != "TemplateProcessing" || !single.is_array() ||
      single.empty()) {
    return std::nullopt;
  }
  return text_member(member(single[0], "SpecialToken"), "id");
}

/// Reads the text of a tokenizer.json; `source` names it in error sentences.
[[nodiscard]] inline tokenizer_parts parse_tokenizer_json(std::string_view text,
                                                          std::string const& source) {
  auto const root = parse_json(text, source);
  auto const& model = member(root, "model");
  check_model(model, source);
  tokenizer_parts parts;
  parts.source = source;
  parts.family = &json_family(root, source);
  parts.pieces = read_vocabulary(root, source);
  parts.whole_piece_first = flag(model, "ignore_merges", false);
  parts.normalise_nfc = reads_nfc(member(root, "normalizer"), source);
  if (!parts.family->merges_by_rank) {
    parts.merges = read_merges(member(model, "merges"), parts.pieces, source);
  }
  if (auto const unknown = text_member(model, "unk_token")) {
    parts.unknown = parts.pieces.find(*unknown);
  }
  if (auto const first = leading_token(member(root, "post_processor"))) {
    parts.bos = parts.pieces.find(*first);
    parts.add_bos = parts.bos.has_value();
  }
  return parts;
}

}  // namespace terrace::tokenize::detail
