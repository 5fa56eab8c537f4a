// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/chat_options.hpp>
#include <terrace/tokenize/detail/json_file.hpp>
#include <terrace/tokenize/segment.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize {
namespace detail {

using message_json = nlohmann::ordered_json;

/// A value of a tool call as Python's json.dumps writes it, ", " and ": " between parts.
[[nodiscard]] inline std::string spaced_json(message_json const& value) {
  std::string text;
  auto const separate = [&] { text += text.size() > 1 ? ", " : ""; };
  auto const plain = [](message_json const& one) {
    return one.dump(-1, ' ', false, message_json::error_handler_t::replace);
  };
  if (value.is_array()) {
    text = "[";
    for (auto const& one : value) {
      separate();
      text += spaced_json(one);
    }
    return text + "]";
  }
  if (value.is_object()) {
    text = "{";
    for (auto const& [key, one] : value.items()) {
      separate();
      text += plain(key) + ": " + spaced_json(one);
    }
    return text + "}";
  }
  return plain(value);
}

/// The member as a string, or the empty one.
[[nodiscard]] inline std::string string_or_empty(message_json const& object, char const* key) {
  auto const found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

/// One call of a tool: its name, its arguments and the id that a result may answer to.
struct tool_call {
  std::string name, id;
  message_json arguments;
};

/// Writes tags as Kimi K3 was trained on them: names, keys and values of a tag are pieces of their
/// own, and so is every control token.
class xtml_writer {
 public:
  using attribute = std::pair<std::string_view, std::string>;

  explicit xtml_writer(chat_options const& how) : thinks_{how.thinking.value_or(true)} {}

  [[nodiscard]] std::vector<segment> take() && { return std::move(pieces_); }

  /// Errors: contract_error for a role there is no form for or a result without its call;
  ///         not_supported for content other than text.
  void message(message_json const& one) {
    std::string const role = string_or_empty(one, "role");
    if (role == "tool") { return result(one); }
    if (role != "user" && role != "system" && role != "assistant") {
      throw contract_error{"a message has the role `" + role +
                           "`; Kimi K3 knows system, user, assistant and tool"};
    }
    std::vector<attribute> attributes{{"role", role}};
    if (auto name = string_or_empty(one, "name"); !name.empty()) {
      attributes.emplace_back("name", std::move(name));
    }
    open("message", attributes);
    role == "assistant" ? answer(one) : text(content_of(one));
    end_message();
  }
  /// What makes the model answer.
  void ask() {
    open("message", {{"role", "assistant"}});
    open(thinks_ ? "think" : "response");
  }

 private:
  void control(std::string_view token) { pieces_.push_back({std::string{token}, true}); }
  void text(std::string piece) {
    if (!piece.empty()) { pieces_.push_back({std::move(piece), false}); }
  }
  void open(std::string_view name, std::vector<attribute> const& attributes = {}) {
    control("<|open|>");
    text(std::string{name});
    for (auto const& [key, value] : attributes) {
      text(" " + std::string{key});
      text("=\"");
      text(escaped(value));
      text("\"");
    }
    control("<|sep|>");
  }
  void close(std::string_view name) {
    control("<|close|>");
    text(std::string{name});
    control("<|sep|>");
  }
  void end_message() {
    close("message");
    control("<|end_of_msg|>");
  }

  void answer(message_json const& one) {
    if (thinks_) {
      auto thought = string_or_empty(one, "reasoning");
      if (thought.empty()) { thought = string_or_empty(one, "reasoning_content"); }
      open("think");
      text(std::move(thought));
      close("think");
    }
    open("response");
    text(content_of(one));
    close("response");
    calls_ = calls_of(one);
    answered_ = 0;
    if (calls_.empty()) { return; }
    open("tools");
    for (std::size_t i = 0; i < calls_.size(); ++i) { call(calls_[i], i + 1); }
    close("tools");
  }
  void call(tool_call const& one, std::size_t index) {
    open("call", {{"tool", one.name}, {"index", std::to_string(index)}});
    for (auto const& [key, value] : one.arguments.items()) {
      open("argument", {{"key", key}, {"type", type_of(value)}});
      text(value.is_string() ? value.get<std::string>() : spaced_json(value));
      close("argument");
    }
    close("call");
  }
  /// A result names the call it answers by id, or follows the order of the calls.
  void result(message_json const& one) {
    std::string const id = string_or_empty(one, "tool_call_id");
    std::size_t index = answered_++;
    for (std::size_t i = 0; i < calls_.size() && !id.empty(); ++i) {
      if (calls_[i].id == id) { index = i; }
    }
    if (index >= calls_.size()) {
      throw contract_error{"a message of role `tool` is number " + std::to_string(index + 1) +
                           " after an answer with " + std::to_string(calls_.size()) +
                           " tool calls; give each call one result"};
    }
    open("message",
         {{"role", "tool"}, {"tool", calls_[index].name}, {"index", std::to_string(index + 1)}});
    text(content_of(one));
    end_message();
  }

  [[nodiscard]] static std::string escaped(std::string_view value) {
    std::string out;
    for (char const letter : value) {
      if (letter == '&') {
        out += "&amp;";
      } else if (letter == '"') {
        out += "&quot;";
      } else {
        out += letter;
      }
    }
    return out;
  }
  [[nodiscard]] static std::string type_of(message_json const& value) {
    if (value.is_string()) { return "string"; }
    if (value.is_number()) { return "number"; }
    if (value.is_boolean()) { return "boolean"; }
    if (value.is_null()) { return "null"; }
    return value.is_array() ? "array" : "object";
  }
  /// A string, null, or a list of parts of type text.
  [[nodiscard]] static std::string content_of(message_json const& one) {
    auto const found = one.find("content");
    if (found == one.end() || found->is_null()) { return {}; }
    if (found->is_string()) { return found->get<std::string>(); }
    std::string all;
    for (auto const& part : *found) {
      if (!part.is_object() || string_or_empty(part, "type") != "text") {
        throw not_supported{"a message has a part that is not of type text; only text is computed"};
      }
      all += string_or_empty(part, "text");
    }
    return all;
  }
  /// Calls as `{"name", "arguments"}`, also inside `{"function": ...}`; arguments are an object or
  /// the text of one.
  [[nodiscard]] static std::vector<tool_call> calls_of(message_json const& one) {
    std::vector<tool_call> calls;
    auto const found = one.find("tool_calls");
    if (found == one.end() || found->is_null()) { return calls; }
    for (auto const& entry : *found) {
      bool const nested = entry.is_object() && entry.contains("function");
      auto const& body = nested ? entry["function"] : entry;
      tool_call call{.name = body.is_object() ? string_or_empty(body, "name") : std::string{},
                     .id = entry.is_object() ? string_or_empty(entry, "id") : std::string{},
                     .arguments = message_json::object()};
      if (body.is_object() && body.contains("arguments")) {
        call.arguments = body["arguments"];
        if (call.arguments.is_string()) {
          auto const written = call.arguments.get<std::string>();
          check_nesting(written, "the arguments of a tool call");
          call.arguments = message_json::parse(written, nullptr, false);
        }
      }
      if (call.name.empty() || !call.arguments.is_object()) {
        throw contract_error{
            "a tool call has no `name`, or `arguments` that are no JSON object; correct it"};
      }
      calls.push_back(std::move(call));
    }
    return calls;
  }

  bool thinks_;
  std::vector<segment> pieces_;
  std::vector<tool_call> calls_;  ///< of the last answer
  std::size_t answered_ = 0;
};

}  // namespace detail

/// The prompt for `messages` in the tags of Kimi K3, which comes without a template: thoughts are
/// kept, and asked for, unless `options.thinking` is false.
/// Errors: contract_error for a role there is no form for, a result without its call or a malformed
///         call; not_supported for content other than text.
[[nodiscard]] inline std::vector<segment> xtml_prompt(nlohmann::ordered_json const& messages,
                                                      chat_options const& options = {}) {
  detail::xtml_writer writer{options};
  for (auto const& one : messages) { writer.message(one); }
  if (options.add_generation_prompt) { writer.ask(); }
  return std::move(writer).take();
}

}  // namespace terrace::tokenize
