// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/detail/text.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace terrace::format::detail {

/// One config.json: its text part, read by key with errors that name the key, and the GGUF keys
/// written so far.
class config_reader {
 protected:
  config_reader(json const& config, json const& generation, std::string source)
      : config_{config}, generation_{generation}, source_{std::move(source)}, out_{source_} {
    if (!config_.is_object()) { throw format_error{source_ + ": is not a JSON object"}; }
    text_ = config_.contains("text_config") && config_["text_config"].is_object()
                ? &config_["text_config"]
                : &config_;
  }

  // ---- reading ----

  /// The value of `key` in the text part of the config, or nothing when absent or null.
  [[nodiscard]] json const* find(char const* key) const { return find(*text_, key); }
  [[nodiscard]] static json const* find(json const& object, char const* key) {
    auto const found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void missing(std::string const& key) const {
    throw format_error{source_ + ": the key `" + key + "` is missing, and a " + arch_ +
                       " model cannot be set up without it"};
  }
  [[noreturn]] void wrong(std::string const& key, char const* wanted) const {
    throw format_error{source_ + ": the key `" + key + "` is not " + wanted};
  }
  [[nodiscard]] std::uint64_t whole(json const& value, std::string const& key) const {
    constexpr std::uint64_t most = 0x7FFF'FFFF;  // no size or id of a model is larger
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
      wrong(key, "a whole number from 0 to 2147483647");
    }
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] std::optional<std::uint64_t> try_whole(char const* key) const {
    auto const* value = find(key);
    if (value == nullptr) { return std::nullopt; }
    return whole(*value, key);
  }
  [[nodiscard]] std::uint64_t need_whole(char const* key) const {
    auto const value = try_whole(key);
    if (!value) { missing(key); }
    return *value;
  }
  [[nodiscard]] std::optional<double> try_real(json const& object, char const* key) const {
    auto const* value = find(object, key);
    if (value == nullptr) { return std::nullopt; }
    if (!value->is_number()) { wrong(key, "a number"); }
    return value->get<double>();
  }
  [[nodiscard]] std::optional<std::string> try_text(json const& object, char const* key) const {
    auto const* value = find(object, key);
    if (value == nullptr) { return std::nullopt; }
    if (!value->is_string()) { wrong(key, "a string"); }
    return value->get<std::string>();
  }

  [[nodiscard]] double need_real(json const& part, char const* key) const {
    auto const value = try_real(part, key);
    if (!value) { missing((&part == text_ ? "" : "rope_scaling.") + std::string{key}); }
    return *value;
  }

  // ---- writing ----

  void put(char const* key, metadata_value value) { out_.set(arch_ + "." + key, std::move(value)); }
  void need(char const* from, char const* to) { put(to, need_whole(from)); }
  void copy(char const* from, char const* to) {
    if (auto const value = try_whole(from)) { put(to, *value); }
  }
  void copy_flag(char const* from, char const* to) {
    auto const* value = find(from);
    if (value == nullptr) { return; }
    if (!value->is_boolean()) { wrong(from, "true or false"); }
    put(to, value->get<bool>());
  }
  /// Settings that change the arithmetic in a way terrace does not compute: refused rather than
  /// ignored.
  void expect(char const* key, json const& only) const {
    auto const* value = find(key);
    if (value == nullptr || *value == only) { return; }
    throw not_supported{source_ + ": the key `" + key + "` is " + in_quotes(value->dump()) +
                        "; for a " + arch_ + " model only " + in_quotes(only.dump()) +
                        " is computed"};
  }

  json const& config_;
  json const& generation_;
  json const* text_ = nullptr;
  std::string source_;
  std::string arch_;
  metadata out_;
};

}  // namespace terrace::format::detail
