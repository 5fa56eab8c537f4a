// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/chat_options.hpp>
#include <terrace/tokenize/detail/json_file.hpp>
#include <terrace/tokenize/jinja/json.hpp>
#include <terrace/tokenize/jinja/program.hpp>
#include <terrace/tokenize/segment.hpp>
#include <terrace/tokenize/tokenizer.hpp>
#include <terrace/tokenize/xtml.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize {

namespace detail {

/// Puts the file's name in front of what went wrong in `run`.
template <class Run>
[[nodiscard]] auto naming(std::string const& source, Run&& run) {
  try {
    return run();
  } catch (format_error const& problem) {
    throw format_error{source + ": " + problem.what()};
  } catch (not_supported const& problem) {
    throw not_supported{source + ": " + problem.what()};
  } catch (contract_error const& problem) { throw contract_error{source + ": " + problem.what()}; }
}

}  // namespace detail

/// A JSON array of messages: objects with a `role` and usually a `content` (a string, null, or a
/// list of parts such as
/// {"type": "text", "text": ...}); what else they hold goes to the template as it is.
/// Errors: format_error naming `source` and the message.
[[nodiscard]] inline nlohmann::ordered_json parse_messages(std::string_view text,
                                                           std::string const& source) {
  detail::check_nesting(text, source);
  nlohmann::ordered_json messages;
  try {
    messages = nlohmann::ordered_json::parse(text);
  } catch (nlohmann::json::exception const& problem) {
    throw format_error{source + ": not valid JSON: " + problem.what()};
  }
  if (!messages.is_array() || messages.empty()) {
    throw format_error{source + ": expected a JSON array of messages"};
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto const& message = messages[i];
    std::string const where = source + ": message " + std::to_string(i);
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw format_error{where + " is no object with a `role`"};
    }
    if (!message.contains("content")) { continue; }
    auto const& content = message["content"];
    if (!content.is_string() && !content.is_array() && !content.is_null()) {
      throw format_error{where + ": `content` is neither a string nor a list of parts"};
    }
  }
  return messages;
}

/// The same from a file.
[[nodiscard]] inline nlohmann::ordered_json read_messages(std::filesystem::path const& path) {
  return parse_messages(detail::read_text_file(path), path.string());
}

/// The chat template of a model file.
class chat_template {
 public:
  /// Errors: not_supported if the file has no template or one outside the subset; format_error if it is broken.
  explicit chat_template(tokenizer const& tokens)
      : program_{parsed(tokens)},
        bos_{spelling(tokens, tokens.bos())},
        eos_{spelling(tokens, tokens.eos())},
        source_{tokens.source()} {}

  /// Whether switching thinking on or off can change the prompt.
  [[nodiscard]] bool can_switch_thinking() const {
    return program_.uses_variable("enable_thinking") || program_.uses_variable("thinking");
  }
  [[nodiscard]] bool uses_variable(std::string_view name) const {
    return program_.uses_variable(name);
  }

  /// The prompt for `messages`, a BOS included where the template writes one: encode it with
  /// special spellings recognised and put no other BOS in front.
  /// Errors: not_supported if `thinking` is set and the template has no such switch; contract_error if the template
  ///         refuses the messages; format_error and not_supported from running it, all naming the
  ///         file.
  [[nodiscard]] std::string render(nlohmann::ordered_json const& messages,
                                   chat_options const& options = {}) const {
    if (options.thinking && !can_switch_thinking()) {
      throw not_supported{source_ +
                          ": the chat template has no switch for thinking; leave the option out"};
    }
    std::vector<std::pair<std::string, jinja::value>> variables{
        {"messages", jinja::from_json(messages)},
        {"add_generation_prompt", options.add_generation_prompt},
        {"bos_token", bos_},
        {"eos_token", eos_},
        {"tools", jinja::none{}},
        {"documents", jinja::none{}},
    };
    if (options.thinking) {
      variables.emplace_back("enable_thinking", *options.thinking);
      variables.emplace_back("thinking", *options.thinking);
    }
    auto const now = options.now.value_or(
        std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
    return detail::naming(source_, [&] { return program_.render(std::move(variables), now); });
  }

 private:
  [[nodiscard]] static std::string spelling(tokenizer const& tokens, std::optional<token_id> id) {
    return id ? std::string{tokens.piece(*id)} : std::string{};
  }
  [[nodiscard]] static jinja::program parsed(tokenizer const& tokens) {
    if (tokens.chat_template().empty()) {
      throw not_supported{tokens.source() +
                          ": the file has no chat template; give the prompt as plain text"};
    }
    return detail::naming(tokens.source(), [&] { return jinja::program{tokens.chat_template()}; });
  }
  jinja::program program_;
  std::string bos_;
  std::string eos_;
  std::string source_;
};

/// `chat_template{tokens}.render(messages, options)`.
[[nodiscard]] inline std::string render_chat(tokenizer const& tokens,
                                             nlohmann::ordered_json const& messages,
                                             chat_options const& options = {}) {
  return chat_template{tokens}.render(messages, options);
}

/// Whether the model was trained on Kimi K3's tags: its vocabulary has their control tokens. A
/// template in such a file cannot say where pieces end, so it is not used.
[[nodiscard]] inline bool speaks_xtml(tokenizer const& tokens) {
  for (std::string_view const spelling : {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"}) {
    auto const id = tokens.find(spelling);
    if (!id || !tokens.is_control(*id)) { return false; }
  }
  return true;
}

/// The prompt for `messages` in pieces to encode: by the file's template, or in Kimi K3's tags. It
/// has the BOS, if the model wants one.
/// Errors: those of `chat_template` and of `xtml_prompt`, naming the file.
[[nodiscard]] inline std::vector<segment> chat_prompt(tokenizer const& tokens,
                                                      nlohmann::ordered_json const& messages,
                                                      chat_options const& options = {}) {
  if (!speaks_xtml(tokens)) { return {{render_chat(tokens, messages, options), true}}; }
  return detail::naming(tokens.source(), [&] { return xtml_prompt(messages, options); });
}

}  // namespace terrace::tokenize
