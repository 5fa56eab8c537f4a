// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
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

/// What delta attention keeps of a sequence.
struct kda_expectation {
  std::vector<std::vector<double>> norm, sum;            ///< [layers][heads], of the matrices
  std::vector<std::vector<std::vector<double>>> corner;  ///< [layers][heads][4]
  std::vector<std::vector<double>> history_norm;         ///< [layers][3], of q, k and v
};

/// What a sequence of ids should give: the fields of `prompts[].bos` and `.nobos`.
struct expectation {
  std::vector<std::int32_t> ids;
  std::vector<float> last_logits;
  std::vector<std::int32_t> greedy;
  std::vector<double> greedy_gap;
  std::vector<std::int32_t> argmax;
  std::vector<float> top20_logits;            ///< [positions][20], or empty
  std::vector<std::uint16_t> router_ids;      ///< [positions][layers][top_k], or empty
  std::vector<float> stream_norms;            ///< [layers + 1][positions], or empty
  std::vector<std::vector<double>> mixtures;  ///< of the last position in order of use, or empty
  std::optional<kda_expectation> kda;
  std::vector<double> latent_norms, key_norms;  ///< per layer of latent attention, or empty
};

struct prompt {
  std::string name, text;
  std::vector<std::int32_t> ids, ids_bos;
  std::vector<expectation> results;  ///< for ids_bos where the model has a BOS, and for ids
};

struct chat {
  std::string name, rendered;
  json messages;
  std::optional<bool> thinking;
  bool asks = true;  ///< for an answer: the generation prompt is appended
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
                  .router_ids = {},
                  .stream_norms = {},
                  .mixtures = in.value("mix_weights_last", std::vector<std::vector<double>>{}),
                  .kda = {},
                  .latent_norms = {},
                  .key_norms = {}};
  if (in.contains("top20_logits")) {
    out.top20_logits = decode_array<float>(in["top20_logits"].get<std::string>());
  }
  if (in.contains("router_ids")) {
    out.router_ids = decode_array<std::uint16_t>(in["router_ids"].get<std::string>());
  }
  if (in.contains("kda_state")) {
    auto const& state = in["kda_state"];
    out.stream_norms = decode_array<float>(in.at("hidden_norms").get<std::string>());
    out.kda = {.norm = state.at("norm"),
               .sum = state.at("sum"),
               .corner = state.at("corner"),
               .history_norm = state.at("conv_norm")};
    out.latent_norms = in.at("mla_cache").at("latent_norm").get<std::vector<double>>();
    out.key_norms = in.at("mla_cache").at("key_norm").get<std::vector<double>>();
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
                .ids_bos = one.value("ids_bos", std::vector<std::int32_t>{}),
                .results = {}};
    if (one.contains("bos")) {
      read.results.push_back(detail::read_expectation(one["bos"], read.ids_bos));
    }
    if (one.contains("nobos")) {
      read.results.push_back(detail::read_expectation(one["nobos"], read.ids));
    }
    golden.prompts.push_back(std::move(read));
  }
  for (auto const& one : file.at("chats")) {
    golden.chats.push_back({.name = one.at("name"),
                            .rendered = one.at("rendered"),
                            .messages = one.at("messages"),
                            .thinking = {},
                            .asks = one.value("prompt", true),
                            .ids = one.at("ids"),
                            .greedy = one.value("greedy", std::vector<std::int32_t>{}),
                            .greedy_gap = one.value("greedy_gap", std::vector<double>{}),
                            .stopped = one.value("stopped", false)});
    if (one.contains("thinking")) { golden.chats.back().thinking = one["thinking"].get<bool>(); }
  }
  for (auto const& one : file.at("nll").at("windows")) {
    golden.windows.push_back(
        {.ids = one.at("ids"), .nll = decode_array<float>(one.at("nll").get<std::string>())});
  }
  golden.nll_mean = file["nll"].at("mean");
  return golden;
}

/// The part of it that a machine of few tokens per second computes: prompts of at most `tokens`
/// tokens, and of each window the beginning.
[[nodiscard]] inline golden_file shortened(golden_file golden, std::size_t tokens) {
  std::erase_if(golden.prompts, [&](prompt const& one) { return one.ids.size() > tokens; });
  golden.nll_mean = 0;
  for (auto& one : golden.windows) {
    one.ids.resize(std::min(one.ids.size(), tokens));
    one.nll.resize(one.ids.size() - 1);
    double const sum = std::accumulate(one.nll.begin(), one.nll.end(), 0.0);
    golden.nll_mean +=
        sum / static_cast<double>(one.nll.size()) / static_cast<double>(golden.windows.size());
  }
  return golden;
}

}  // namespace terrace::golden
