// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace terrace {

/// Value of a metadata key. Integers of every width are widened; arrays are homogeneous.
using metadata_value = std::variant<bool,
                                    std::int64_t,
                                    std::uint64_t,
                                    double,
                                    std::string,
                                    std::vector<bool>,
                                    std::vector<std::int64_t>,
                                    std::vector<std::uint64_t>,
                                    std::vector<double>,
                                    std::vector<std::string>>;

/// Key/value metadata of a model, in GGUF spelling whatever the container ("llama.block_count").
/// Readers of other containers translate into these keys, so that models and tokenizers are written
/// once.
/// Errors: a getter throws format_error naming the source and the key when a key is missing or has another type.
class metadata {
 public:
  metadata() = default;
  /// `source` is the file's path, used in error sentences.
  explicit metadata(std::string source) : source_{std::move(source)} {}

  [[nodiscard]] std::string const& source() const noexcept { return source_; }
  void set(std::string key, metadata_value value) {
    values_.insert_or_assign(std::move(key), std::move(value));
  }
  [[nodiscard]] bool contains(std::string_view key) const {
    return values_.find(key) != values_.end();
  }
  [[nodiscard]] metadata_value const* find(std::string_view key) const {
    auto const found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] auto begin() const noexcept { return values_.begin(); }
  [[nodiscard]] auto end() const noexcept { return values_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }

  /// A whole number; a float value, a negative one, or one above 2^63-1 is refused.
  [[nodiscard]] std::optional<std::uint64_t> try_unsigned(std::string_view key) const {
    auto const* value = find(key);
    if (value == nullptr) { return std::nullopt; }
    if (auto const* u = std::get_if<std::uint64_t>(value)) { return *u; }
    if (auto const* i = std::get_if<std::int64_t>(value); i != nullptr && *i >= 0) {
      return static_cast<std::uint64_t>(*i);
    }
    wrong(key, "a whole number that is not negative");
  }
  [[nodiscard]] std::optional<double> try_number(std::string_view key) const {
    auto const* value = find(key);
    if (value == nullptr) { return std::nullopt; }
    if (auto const* d = std::get_if<double>(value)) { return *d; }
    if (auto const* u = std::get_if<std::uint64_t>(value)) { return static_cast<double>(*u); }
    if (auto const* i = std::get_if<std::int64_t>(value)) { return static_cast<double>(*i); }
    wrong(key, "a number");
  }
  [[nodiscard]] std::optional<bool> try_bool(std::string_view key) const {
    return try_as<bool>(key, "true or false");
  }
  [[nodiscard]] std::optional<std::string> try_string(std::string_view key) const {
    return try_as<std::string>(key, "a string");
  }
  [[nodiscard]] std::vector<std::string> const* try_strings(std::string_view key) const {
    auto const* value = find(key);
    if (value == nullptr) { return nullptr; }
    auto const* list = std::get_if<std::vector<std::string>>(value);
    if (list == nullptr) { wrong(key, "an array of strings"); }
    return list;
  }
  /// An array of whole numbers, or one number read as an array of one.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> try_integers(std::string_view key) const {
    auto const* value = find(key);
    if (value == nullptr) { return std::nullopt; }
    if (auto const* i = std::get_if<std::vector<std::int64_t>>(value)) { return *i; }
    if (auto const* u = std::get_if<std::vector<std::uint64_t>>(value)) {
      return std::vector<std::int64_t>(u->begin(), u->end());
    }
    if (auto const* i = std::get_if<std::int64_t>(value)) { return std::vector<std::int64_t>{*i}; }
    if (auto const* u = std::get_if<std::uint64_t>(value)) {
      return std::vector<std::int64_t>{static_cast<std::int64_t>(*u)};
    }
    wrong(key, "an array of whole numbers");
  }

  [[nodiscard]] std::uint64_t get_unsigned(std::string_view key) const {
    return need(key, try_unsigned(key));
  }
  /// A count that fits 31 bits and is at least `least`.
  [[nodiscard]] int get_count(std::string_view key, int least = 1) const {
    return count(key, get_unsigned(key), least);
  }
  [[nodiscard]] std::optional<int> try_count(std::string_view key, int least = 0) const {
    auto const value = try_unsigned(key);
    if (!value) { return std::nullopt; }
    return count(key, *value, least);
  }
  [[nodiscard]] double get_number(std::string_view key) const { return need(key, try_number(key)); }
  [[nodiscard]] std::string get_string(std::string_view key) const {
    return need(key, try_string(key));
  }

 private:
  template <class T>
  [[nodiscard]] std::optional<T> try_as(std::string_view key, char const* wanted) const {
    auto const* value = find(key);
    if (value == nullptr) { return std::nullopt; }
    if (auto const* exact = std::get_if<T>(value)) { return *exact; }
    wrong(key, wanted);
  }
  template <class T>
  [[nodiscard]] T need(std::string_view key, std::optional<T> value) const {
    if (!value) {
      throw format_error{source_ + ": the key `" + std::string{key} +
                         "` is missing; the file is incomplete, get it again"};
    }
    return *std::move(value);
  }
  [[nodiscard]] int count(std::string_view key, std::uint64_t value, int least) const {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<int>::max()) ||
        static_cast<int>(value) < least) {
      throw format_error{source_ + ": the key `" + std::string{key} + "` is " +
                         std::to_string(value) + ", outside " + std::to_string(least) +
                         " to 2147483647"};
    }
    return static_cast<int>(value);
  }
  [[noreturn]] void wrong(std::string_view key, char const* wanted) const {
    throw format_error{source_ + ": the key `" + std::string{key} +
                       "` has another type than expected (" + wanted + ")"};
  }

  std::string source_;
  std::map<std::string, metadata_value, std::less<>> values_;
};

}  // namespace terrace
