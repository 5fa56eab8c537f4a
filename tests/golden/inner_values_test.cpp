// SPDX-License-Identifier: Apache-2.0
// What lies inside a pass of Kimi K3 and what it keeps of a sequence, against the reference.
#include "models.hpp"
#include "support/golden_file.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"

#include <terrace/core/kda_shape.hpp>
#include <terrace/model/inner_values.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

constexpr double difference = 1e-4;

Catch::Approx near(double expected) {
  return Catch::Approx{expected}.epsilon(difference).margin(difference);
}

double norm_of(std::span<float const> values) {
  double squares = 0;
  for (float const one : values) { squares += double{one} * one; }
  return std::sqrt(squares);
}

/// What a watcher was shown of one sequence.
struct seen {
  std::vector<std::vector<double>> stream_norms;  ///< [layers + 1][positions]
  std::vector<std::vector<double>> mixtures;      ///< of the last position, in order of use

  /// Watches one prompt of at most a chunk.
  model::inner_watcher watcher() {
    return [this](model::inner_values const& shown) {
      auto const row = [&](std::size_t at) {
        return shown.values.subspan(at * shown.cols, shown.cols);
      };
      if (shown.name == "mixture") {
        auto const last = row(shown.rows - 1);
        mixtures.emplace_back(last.begin(), last.end());
        return;
      }
      REQUIRE(shown.name == "stream");
      auto& norms = stream_norms.emplace_back();
      for (std::size_t at = 0; at < shown.rows; ++at) { norms.push_back(norm_of(row(at))); }
    };
  }
};

void check_stream(seen const& model, expectation const& expected) {
  std::size_t const positions = expected.ids.size();
  REQUIRE(model.stream_norms.size() * positions == expected.stream_norms.size());
  for (std::size_t layer = 0; layer < model.stream_norms.size(); ++layer) {
    INFO("after " << layer << " layers");
    for (std::size_t at = 0; at < positions; ++at) {
      INFO("position " << at);
      CHECK(model.stream_norms[layer][at] == near(expected.stream_norms[layer * positions + at]));
    }
  }
}

void check_mixtures(seen const& model, expectation const& expected) {
  REQUIRE(model.mixtures.size() == expected.mixtures.size());
  for (std::size_t use = 0; use < expected.mixtures.size(); ++use) {
    INFO("mixture " << use);
    REQUIRE(model.mixtures[use].size() == expected.mixtures[use].size());
    for (std::size_t i = 0; i < expected.mixtures[use].size(); ++i) {
      CHECK(model.mixtures[use][i] == near(expected.mixtures[use][i]));
    }
  }
}

std::vector<float> state_of(running_model& model, int layer) {
  auto const bytes = model.pipeline().state(layer);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void check_recurrent_layer(std::span<float const> state,
                           kda_shape const& shape,
                           kda_expectation const& expected,
                           std::size_t number) {
  REQUIRE(state.size() == shape.state_values());
  std::size_t const dim = shape.dim;
  for (std::size_t head = 0; head < shape.heads; ++head) {
    INFO("head " << head);
    auto const s = state.subspan(head * dim * dim, dim * dim);
    double sum = 0;
    for (float const one : s) { sum += one; }
    CHECK(norm_of(s) == near(expected.norm[number][head]));
    CHECK(sum == Catch::Approx{expected.sum[number][head]}.epsilon(difference).margin(1e-3));
    std::size_t const corner[] = {0, 1, dim, dim + 1};
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(s[corner[i]] == near(expected.corner[number][head][i]));
    }
  }
  for (std::size_t which = 0; which < 3; ++which) {
    CHECK(norm_of(state.subspan(shape.history_offset(which), shape.history_values())) ==
          near(expected.history_norm[number][which]));
  }
}

/// The rows of full attention, in pages of one row a token, behind which nothing counts.
void check_rows(std::span<float const> rows,
                std::size_t tokens,
                model::decoder_config const& config,
                expectation const& expected,
                std::size_t number) {
  auto const latent = static_cast<std::size_t>(config.kv_lora);
  auto const width = latent + static_cast<std::size_t>(config.rope_dim);
  double latents = 0, keys = 0;
  for (std::size_t at = 0; at < tokens; ++at) {
    auto const row = rows.subspan(at * width, width);
    latents += std::pow(norm_of(row.first(latent)), 2);
    keys += std::pow(norm_of(row.subspan(latent)), 2);
  }
  CHECK(std::sqrt(latents) == near(expected.latent_norms[number]));
  CHECK(std::sqrt(keys) == near(expected.key_norms[number]));
}

void check_state(running_model& model, expectation const& expected) {
  auto const config = runner::read_decoder_config(model.catalog().meta());
  std::size_t recurrent = 0, full = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    INFO("layer " << layer);
    auto const state = state_of(model, layer);
    if (config.is_recurrent(layer)) {
      check_recurrent_layer(state, config.kda, *expected.kda, recurrent++);
    } else {
      check_rows(state, expected.ids.size(), config, expected, full++);
    }
  }
  CHECK(recurrent == expected.kda->norm.size());
  CHECK(full == expected.latent_norms.size());
}

TEST_CASE("streams, mixtures and states of Kimi K3 are the reference's", "[golden]") {
  for (bool const safetensors : {false, true}) {
    auto const which = reference_model("kimi-k3-tiny", safetensors);
    INFO(which.name);
    auto const golden = read_golden(which.golden);
    running_model model{which.weights, {.prefill_chunk = 1024}};
    for (auto const& prompt : golden.prompts) {
      INFO("prompt " << prompt.name);
      auto const& expected = prompt.results.front();
      seen shown;
      model.pipeline().watch(shown.watcher());
      static_cast<void>(model.logits(expected.ids));
      model.pipeline().watch({});
      check_stream(shown, expected);
      check_mixtures(shown, expected);
      check_state(model, expected);
    }
  }
}

}  // namespace
}  // namespace terrace::golden
