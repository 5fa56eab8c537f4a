// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config_text.hpp"
#include "shape.hpp"

#include <terrace/format/gguf_writer.hpp>
#include <terrace/tokenize/pre_tokenizers.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::synth {

/// A vocabulary that any text can be encoded in: all bytes, all pairs of small letters, a space
/// before a letter, and as many pairs of pairs as there is room for; then special tokens.
class made_tokenizer {
 public:
  explicit made_tokenizer(model_shape const& shape) : shape_{shape}, ids_{ids_of(shape)} {
    auto const room = [&] { return pieces_.size() < static_cast<std::size_t>(ids_.first_special); };
    for (int byte = 0; byte < 256; ++byte) { pieces_.emplace_back(1, static_cast<char>(byte)); }
    auto const join = [&](std::string left, std::string right) {
      if (!room()) { return; }
      pieces_.push_back(left + right);
      merges_.emplace_back(std::move(left), std::move(right));
    };
    std::vector<std::string> letters, pairs;
    for (char letter = 'a'; letter <= 'z'; ++letter) { letters.emplace_back(1, letter); }
    for (auto const& left : letters) {
      for (auto const& right : letters) {
        pairs.push_back(left + right);
        join(left, right);
      }
    }
    for (auto const& letter : letters) { join(" ", letter); }
    for (auto const& left : pairs) {
      for (auto const& right : pairs) { join(left, right); }
    }
    name_specials();
  }

  /// Keys of a GGUF.
  void write(format::gguf_writer& out) const {
    std::vector<std::string> tokens, merges;
    std::vector<std::int64_t> types;
    for (auto const& piece : pieces_) {
      tokens.push_back(letters_of(piece));
      types.push_back(1);
    }
    for (int id = ids_.first_special; id < shape_.vocab; ++id) {
      tokens.push_back(special(id));
      types.push_back(3);
    }
    for (auto const& [left, right] : merges_) {
      merges.push_back(letters_of(left) + " " + letters_of(right));
    }
    out.set("tokenizer.ggml.model", std::string{"gpt2"});
    out.set("tokenizer.ggml.pre", std::string{split_name()});
    out.set("tokenizer.ggml.tokens", std::move(tokens));
    out.set("tokenizer.ggml.token_type", std::move(types), format::gguf_value_type::i32);
    out.set("tokenizer.ggml.merges", std::move(merges));
    auto const id = [&](char const* key, int value) {
      out.set(key, static_cast<std::uint64_t>(value));
    };
    id("tokenizer.ggml.bos_token_id", ids_.bos);
    id("tokenizer.ggml.eos_token_id", shape_.is_hybrid() ? ids_.end_of_turn : ids_.eos);
    if (!shape_.is_hybrid()) { id("tokenizer.ggml.eot_token_id", ids_.end_of_turn); }
    out.set("tokenizer.ggml.add_bos_token", shape_.family == family::llama);
    if (!chat_template().empty()) {
      out.set("tokenizer.chat_template", std::string{chat_template()});
    }
  }

  /// Name and text of each file of a folder.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const {
    json config{{"bos_token", special(ids_.bos)},
                {"eos_token", special(ids_.eos)},
                {"add_bos_token", shape_.family == family::llama}};
    if (!chat_template().empty()) { config["chat_template"] = chat_template(); }
    bool const ranked = (static_cast<unsigned>(shape_.family) & kimi) != 0;
    json added = json::array(), decoder = json::object();
    for (int id = ids_.first_special; id < shape_.vocab; ++id) {
      if (ranked && !names_.contains(id)) { continue; }
      json token{{"content", special(id)},
                 {"lstrip", false},
                 {"normalized", false},
                 {"rstrip", false},
                 {"single_word", false},
                 {"special", true}};
      if (ranked) {
        decoder[std::to_string(id)] = std::move(token);
      } else {
        token["id"] = id;
        added.push_back(std::move(token));
      }
    }
    if (ranked) {
      config["added_tokens_decoder"] = std::move(decoder);
      return {{"tiktoken.model", ranks()}, {"tokenizer_config.json", config.dump(1)}};
    }
    return {{"tokenizer.json", tokenizer_json(std::move(added)).dump(-1)},
            {"tokenizer_config.json", config.dump(1)}};
  }

 private:
  void name_specials() {
    auto const name = [&](int offset, char const* text) {
      names_[ids_.first_special + offset] = text;
    };
    switch (shape_.family) {
      case family::llama:
        name(0, "<|begin_of_text|>");
        name(1, "<|end_of_text|>");
        name(6, "<|start_header_id|>");
        name(7, "<|end_header_id|>");
        name(8, "<|eom_id|>");
        name(9, "<|eot_id|>");
        return;
      case family::minimax_m2:
        name(19, "]~b]");
        name(20, "[e~[");
        name(34, "]~!b[");
        return;
      case family::kimi_k2:
      case family::kimi_linear:
        name(2, "<|im_end|>");
        name(3, "<|im_user|>");
        name(4, "<|im_assistant|>");
        name(10, "<|im_system|>");
        name(17, "<|im_middle|>");
        break;
      case family::kimi_k3:
        name(2, "<|end_of_msg|>");
        name(3, "<|open|>");
        name(4, "<|close|>");
        name(5, "<|sep|>");
        break;
    }
    name(0, "[BOS]");
    name(1, "[EOS]");
    name(254, "[UNK]");
    name(255, "[PAD]");
  }
  [[nodiscard]] std::string special(int id) const {
    auto const named = names_.find(id);
    return named != names_.end() ? named->second : "<|reserved_token_" + std::to_string(id) + "|>";
  }

  /// Kimi K3 has none: a program writes its prompts.
  [[nodiscard]] std::string_view chat_template() const noexcept {
    switch (shape_.family) {
      case family::llama:
        return "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + "
               "message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}"
               "{%- endfor %}{%- if add_generation_prompt %}{{- "
               "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}";
      case family::minimax_m2:
        return "{{- ']~!b[' }}{%- for message in messages %}{{- ']~b]' + message['role'] + '\n' + "
               "message['content'] + '[e~[\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- "
               "']~b]ai\n' }}{%- endif %}";
      case family::kimi_k2:
      case family::kimi_linear:
        return "{%- for message in messages %}{{- '<|im_' + message['role'] + '|>' + "
               "message['role'] + '<|im_middle|>' + message['content'] + '<|im_end|>' }}"
               "{%- endfor %}{%- if add_generation_prompt %}{{- "
               "'<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}";
      default:
        return {};
    }
  }
  [[nodiscard]] std::string_view split_name() const noexcept {
    switch (shape_.family) {
      case family::llama:
        return "llama-bpe";
      case family::minimax_m2:
        return "minimax-m2";
      default:
        return "kimi-k2";
    }
  }

  [[nodiscard]] json tokenizer_json(json added) const {
    json vocab = json::object(), merges = json::array();
    auto& entries = vocab.get_ref<json::object_t&>();  // in order: a look-up each would be square
    int id = 0;
    for (auto const& piece : pieces_) { entries.push_back({letters_of(piece), id++}); }
    for (auto const& [left, right] : merges_) {
      merges.push_back(json::array({letters_of(left), letters_of(right)}));
    }
    auto const* split = tokenize::find_family(split_name());
    return {{"version", "1.0"},
            {"added_tokens", std::move(added)},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "Sequence"},
              {"pretokenizers",
               {{{"type", "Split"},
                 {"pattern", {{"Regex", split->regexes[0]}}},
                 {"behavior", "Isolated"},
                 {"invert", false}},
                {{"type", "ByteLevel"},
                 {"add_prefix_space", false},
                 {"trim_offsets", true},
                 {"use_regex", false}}}}}},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model",
             {{"type", "BPE"},
              {"ignore_merges", split->whole_piece_first},
              {"byte_fallback", false},
              {"vocab", std::move(vocab)},
              {"merges", std::move(merges)}}}};
  }

  /// One "base64 rank" a line.
  [[nodiscard]] std::string ranks() const {
    static constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    std::size_t rank = 0;
    for (auto const& piece : pieces_) {
      for (std::size_t at = 0; at < piece.size(); at += 3) {
        std::uint32_t bits = 0;
        for (std::size_t i = 0; i < 3; ++i) {
          bits = (bits << 8U) |
                 (at + i < piece.size() ? static_cast<unsigned char>(piece[at + i]) : 0U);
        }
        for (std::size_t i = 0; i < 4; ++i) {
          text += at + i <= piece.size() ? digits[(bits >> (18 - 6 * i)) & 63U] : '=';
        }
      }
      text += ' ' + std::to_string(rank++) + '\n';
    }
    return text;
  }

  /// GPT-2's spelling: bytes that print stand for themselves as Latin-1, the others for U+0100
  /// onwards in order.
  [[nodiscard]] static std::string letters_of(std::string_view bytes) {
    static std::array<std::string, 256> const spelling = [] {
      std::array<std::string, 256> made;
      unsigned next = 0x100;
      for (unsigned byte = 0; byte < 256; ++byte) {
        bool const prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
        unsigned const code = prints ? byte : next++;
        if (code < 0x80) {
          made[byte] = static_cast<char>(code);
        } else {
          made[byte] = {static_cast<char>(0xC0U | (code >> 6U)),
                        static_cast<char>(0x80U | (code & 63U))};
        }
      }
      return made;
    }();
    std::string text;
    for (char const byte : bytes) { text += spelling[static_cast<unsigned char>(byte)]; }
    return text;
  }

  model_shape shape_;
  token_ids ids_;
  std::vector<std::string> pieces_;
  std::vector<std::pair<std::string, std::string>> merges_;
  std::map<int, std::string> names_;
};

}  // namespace terrace::synth
