// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/safetensors.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace format_test {

namespace fs = std::filesystem;

/// A folder that goes away with its owner.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (fs::temp_directory_path() / "terrace-format-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] fs::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] fs::path const& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

inline void write_file(fs::path const& path, std::string_view bytes) {
  std::ofstream out{path, std::ios::binary};
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}
inline std::string read_file(fs::path const& path) {
  std::ifstream in{path, std::ios::binary};
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The sentence of the `Error` that `act` throws; fails the test when it throws nothing or
/// something else.
template <class Error = terrace::format_error, class Act>
std::string refusal(Act&& act) {
  try {
    act();
  } catch (Error const& problem) { return problem.what(); }
  FAIL("nothing was refused");
  return {};
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
inline std::string raw_text(std::string_view text) {
  return raw(std::uint64_t{text.size()}) + std::string{text};
}

/// A GGUF file put together by hand, so that every field may lie.
struct raw_gguf {
  struct tensor {
    std::string name = "t";
    std::vector<std::uint64_t> dims{4};
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
  };
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys;  ///< each with its name, type and value
  std::vector<tensor> tensors;
  std::uint64_t more_keys = 0;     ///< added to the true count in the header
  std::uint64_t more_tensors = 0;  ///< likewise
  std::uint64_t alignment = 32;
  std::string data;

  raw_gguf& key(std::string_view name,
                terrace::format::gguf_value_type type,
                std::string const& value) {
    keys.push_back(raw_text(name) + raw(static_cast<std::uint32_t>(type)) + value);
    return *this;
  }
  [[nodiscard]] std::string header() const {
    std::string out =
        magic + raw(version) + raw(tensors.size() + more_tensors) + raw(keys.size() + more_keys);
    for (auto const& entry : keys) { out += entry; }
    for (auto const& entry : tensors) {
      out += raw_text(entry.name) + raw(static_cast<std::uint32_t>(entry.dims.size()));
      for (auto const dim : entry.dims) { out += raw(dim); }
      out += raw(entry.type) + raw(entry.offset);
    }
    return out;
  }
  [[nodiscard]] std::string bytes() const {
    std::string out = header();
    if (alignment != 0) { out.resize((out.size() + alignment - 1) / alignment * alignment, '\0'); }
    return out + data;
  }
};

inline terrace::format::gguf_file parse_gguf(std::string_view bytes) {
  return terrace::format::read_gguf(
      terrace::format::memory_source{"model.gguf", std::as_bytes(std::span{bytes})});
}
inline terrace::format::safetensors_file parse_safetensors(std::string_view bytes) {
  return terrace::format::read_safetensors(
      terrace::format::memory_source{"model.safetensors", std::as_bytes(std::span{bytes})});
}

/// A safetensors file from its header text and data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return raw(std::uint64_t{header.size()}) + std::string{header} + std::string{data};
}

/// Adds tensors one after another and makes the file that holds them.
class safetensors_maker {
 public:
  safetensors_maker& add(std::string const& name,
                         std::string const& dtype,
                         std::vector<std::uint64_t> const& shape,
                         std::string const& data) {
    std::string dims;
    for (auto const dim : shape) { dims += (dims.empty() ? "" : ",") + std::to_string(dim); }
    header_ += (header_.empty() ? "" : ",") +
               ("\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + dims +
                "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
                std::to_string(data_.size() + data.size()) + "]}");
    data_ += data;
    return *this;
  }
  /// `bytes_per_element` zeros for every element.
  safetensors_maker& add(std::string const& name,
                         std::string const& dtype,
                         std::vector<std::uint64_t> const& shape,
                         std::size_t bytes_per_element) {
    std::size_t count = bytes_per_element;
    for (auto const dim : shape) { count *= dim; }
    return add(name, dtype, shape, std::string(count, '\0'));
  }
  [[nodiscard]] std::string bytes() const { return safetensors_bytes("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace format_test
