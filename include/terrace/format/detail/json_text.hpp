// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/text.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::format::detail {

using json = nlohmann::json;

inline constexpr std::uint64_t json_limit_bytes = 100 * 1000 * 1000;

/// Builds a value from the library's parse events. Stricter than the library: a key that occurs
/// twice in one object is refused, because readers disagree on which of the two counts.
class strict_json_builder final : public nlohmann::json_sax<json> {
 public:
  explicit strict_json_builder(std::string const& source) : source_{source} {}
  [[nodiscard]] json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, string_t const&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    auto const [at, fresh] = open_.back()->get_ref<json::object_t&>().try_emplace(name);
    if (!fresh) {
      refuse("the key " + in_quotes(name) + " occurs twice in one object; the file is damaged");
    }
    member_ = &at->second;
    return true;
  }
  bool parse_error(std::size_t byte, std::string const&, json::exception const&) override {
    refuse("not valid JSON at byte " + std::to_string(byte) + " of its text; get the file again");
  }

 private:
  static constexpr std::size_t deepest = 64;

  [[noreturn]] void refuse(std::string const& rest) const {
    throw format_error{source_ + ": " + rest};
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == deepest) {
      refuse("the JSON is nested deeper than " + std::to_string(deepest) +
             " levels; the file is damaged or hostile");
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  json& place(json value) {
    if (open_.empty()) { return root_ = std::move(value); }
    if (open_.back()->is_object()) { return *member_ = std::move(value); }
    auto& list = open_.back()->get_ref<json::array_t&>();
    return list.emplace_back(std::move(value));
  }

  std::string const& source_;
  json root_;
  std::vector<json*>
      open_;  ///< containers around the current place; a parent never moves while a child is open
  json* member_ = nullptr;  ///< where the value of the last key goes
};

/// Parses `text` as one JSON value.
/// Errors: format_error naming `source` and the byte.
[[nodiscard]] inline json parse_json(std::string_view text, std::string const& source) {
  strict_json_builder builder{source};
  json::sax_parse(text, &builder);  // throws where it would return false
  return builder.take();
}

/// The whole text of a small file.
[[nodiscard]] inline json read_json(std::filesystem::path const& path) {
  file_source const file{path};
  if (file.size_bytes() > json_limit_bytes) {
    throw format_error{path.string() + ": " + std::to_string(file.size_bytes()) +
                       " bytes, more than the " + std::to_string(json_limit_bytes) +
                       " that are read as JSON"};
  }
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span{text}));
  return parse_json(text, path.string());
}

}  // namespace terrace::format::detail
