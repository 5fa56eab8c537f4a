// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::golden {

using json = nlohmann::ordered_json;

inline constexpr std::string_view base64_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static_assert(std::endian::native == std::endian::little, "golden files are little endian");

/// Base64 of little-endian elements.
template <class Element>
[[nodiscard]] std::string encode_array(std::span<Element const> elements) {
  std::string text;
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (std::byte const one : std::as_bytes(elements)) {
    bits = bits << 8U | static_cast<std::uint32_t>(one);
    for (held += 8; held >= 6; held -= 6) { text += base64_alphabet[bits >> (held - 6) & 63U]; }
  }
  if (held > 0) { text += base64_alphabet[bits << (6 - held) & 63U]; }
  text.append((4 - text.size() % 4) % 4, '=');
  return text;
}
template <class Element>
[[nodiscard]] std::vector<Element> decode_array(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (char const letter : text) {
    auto const value = base64_alphabet.find(letter);
    if (value == std::string_view::npos) { break; }  // padding
    bits = bits << 6U | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> static_cast<unsigned>(held) & 0xFFU);
    }
  }
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(Element));
  return elements;
}

/// What a sequence of ids should give: the fields of `prompts[].bos` and `.nobos`.
struct expectation {
  std::vector<std::int32_t> ids;
  std::vector<float> last_logits;
  std::vector<std::int32_t> greedy;
  std::vector<double> greedy_gap;
  std::vector<std::int32_t> argmax;
  std::vector<float> top20_logits;        ///< [positions][20], or empty
  std::vector<std::uint16_t> router_ids;  ///< [positions][layers][top_k], or empty
};

struct prompt {
  std::string name, text;
  std::vector<std::int32_t> ids, ids_bos;
  expectation bos;
  std::optional<expectation> nobos;
};

struct chat {
  std::string name, rendered;
  json messages;
  std::vector<std::int32_t> ids, greedy;
  std::vector<double> greedy_gap;
  bool stopped = false;
};

struct window {
  std::vector<std::int32_t> ids;
  std::vector<float> nll;  ///< [ids - 1]
};

/// golden.json of one model.
struct golden_file {
  std::size_t top_k = 0, moe_layers = 0;
  std::vector<prompt> prompts;
  std::vector<chat> chats;
  std::vector<window> windows;
  double nll_mean = 0;
};

namespace detail {

[[nodiscard]] inline expectation read_expectation(json const& in, std::vector<std::int32_t> ids) {
  expectation out{.ids = std::move(ids),
                  .last_logits = decode_array<float>(in.at("last_logits").get<std::string>()),
                  .greedy = in.at("greedy"),
                  .greedy_gap = in.at("greedy_gap"),
                  .argmax = in.value("argmax", std::vector<std::int32_t>{}),
                  .top20_logits = {},
                  .router_ids = {}};
  if (in.contains("top20_logits")) {
    out.top20_logits = decode_array<float>(in["top20_logits"].get<std::string>());
  }
  if (in.contains("router_ids")) {
    out.router_ids = decode_array<std::uint16_t>(in["router_ids"].get<std::string>());
  }
  return out;
}

}  // namespace detail

[[nodiscard]] inline golden_file read_golden(std::filesystem::path const& path) {
  std::ifstream in{path};
  if (!in) { throw std::runtime_error{"cannot open " + path.string()}; }
  json const file = json::parse(in);
  golden_file golden;
  if (file.contains("top_k") && file["top_k"].is_number()) { golden.top_k = file["top_k"]; }
  if (file.contains("moe_layers")) { golden.moe_layers = file["moe_layers"].size(); }
  for (auto const& one : file.at("prompts")) {
    prompt read{.name = one.at("name"),
                .text = one.at("text"),
                .ids = one.at("ids"),
                .ids_bos = one.at("ids_bos"),
                .bos = {},
                .nobos = {}};
    read.bos = detail::read_expectation(one.at("bos"), read.ids_bos);
    if (one.contains("nobos")) { read.nobos = detail::read_expectation(one["nobos"], read.ids); }
    golden.prompts.push_back(std::move(read));
  }
  for (auto const& one : file.at("chats")) {
    golden.chats.push_back({.name = one.at("name"),
                            .rendered = one.at("rendered"),
                            .messages = one.at("messages"),
                            .ids = one.at("ids"),
                            .greedy = one.at("greedy"),
                            .greedy_gap = one.at("greedy_gap"),
                            .stopped = one.at("stopped")});
  }
  for (auto const& one : file.at("nll").at("windows")) {
    golden.windows.push_back(
        {.ids = one.at("ids"), .nll = decode_array<float>(one.at("nll").get<std::string>())});
  }
  golden.nll_mean = file["nll"].at("mean");
  return golden;
}

}  // namespace terrace::golden
