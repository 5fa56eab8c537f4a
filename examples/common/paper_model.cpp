// SPDX-License-Identifier: Apache-2.0
#include "paper_model.hpp"

#include "models.hpp"
#include "text_file.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/model_config.hpp>
#include <terrace/model/config.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace terrace::runner {
namespace {

using json = nlohmann::json;

/// Bits per parameter as `dtype` and `quantization_config` state them, scales included.
void read_encoding(json const& config, paper_model& model) {
  auto const dtype = config.value("torch_dtype", config.value("dtype", std::string{"bfloat16"}));
  model.dense_bits = dtype == "float32" ? 32 : 16;
  model.expert_bits = model.dense_bits;
  if (!config.contains("quantization_config") || !config["quantization_config"].is_object()) {
    return;
  }
  auto const& quantised = config["quantization_config"];
  auto const method = quantised.value("quant_method", std::string{});
  if (method == "fp8" || method == "fbgemm_fp8") {
    model.dense_bits = model.expert_bits = 8;
  } else if (quantised.value("format", std::string{}).starts_with("mxfp4")) {
    model.expert_bits = 4.25;  // a byte of scale for 32 weights
  } else if (method == "compressed-tensors") {
    model.expert_bits = 4.5;  // two bytes of scale for 32 weights
  } else {
    throw not_supported{"the config states the quantisation `" + method +
                        "`, whose size is not known; plan from the weights"};
  }
}

template <class A, class B>
std::uint64_t product(A a, B b) {
  return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
}

std::uint64_t delta_attention_parameters(model::decoder_config const& c) {
  std::uint64_t const width = c.kda.width();
  std::uint64_t const narrow = product(c.kda.dim, c.hidden + width);  // into and out of it
  return product(4 * width, c.hidden) + product(3 * width, c.kda.taps) + narrow +
         (c.full_gates ? product(width, c.hidden) : narrow) + product(c.kda.heads, c.hidden + 1) +
         width + c.kda.dim;
}

std::uint64_t attention_parameters(model::decoder_config const& c, int layer) {
  if (c.is_recurrent(layer)) { return delta_attention_parameters(c); }
  std::uint64_t const out = product(c.hidden, c.heads) * c.value_dim;
  if (c.kv_lora > 0) {
    int const query_in = c.q_lora > 0 ? c.q_lora : c.hidden;
    return product(c.q_lora, c.hidden) + product(query_in, c.heads) * c.key_dim +
           product(c.kv_lora + c.rope_dim, c.hidden) +
           product(c.kv_lora, c.heads) * (c.nope_dim + c.value_dim) + (c.full_gates ? 2 : 1) * out;
  }
  return product(c.hidden, c.heads * c.key_dim + c.kv_heads * (c.key_dim + c.value_dim)) + out;
}

/// Norms and, with a residual bank, the two vectors of each score.
std::uint64_t stream_parameters(model::decoder_config const& c) {
  return product(c.bank_block > 0 ? 6 : 2, c.hidden);
}

/// Sizes the steps of a pass in the order in which a decoder takes them.
class sizer {
 public:
  sizer(model::decoder_config const& config,
        paper_model& model,
        std::function<std::uint64_t(std::uint64_t)> const& counted)
      : config_{config}, model_{model}, counted_{counted} {}

  void size() {
    auto const table = product(config_.vocab, config_.hidden);
    add_dense(table, 16);  // embeddings and heads are not quantised in published checkpoints
    for (int layer = 0; layer < config_.layers; ++layer) {
      add_dense(attention_parameters(config_, layer) + stream_parameters(config_),
                model_.dense_bits);
      config_.is_mixture(layer)
          ? add_mixture(layer)
          : add_dense(3 * product(config_.hidden, config_.dense_width), model_.dense_bits);
    }
    if (tied) {
      model_.needs.steps.push_back({{model_.needs.steps.front().dense.front()}});
      active_ -= table;
    } else {
      add_dense(table, 16);
    }
    model_.active_parameters = active_ - table + (tied ? table : 0);
  }
  bool tied = false;

 private:
  [[nodiscard]] std::uint64_t bytes(std::uint64_t parameters, double bits) const {
    return counted_(
        static_cast<std::uint64_t>(std::ceil(static_cast<double>(parameters) * bits / 8)));
  }
  void add_dense(std::uint64_t parameters, double bits) {
    auto const id = make_block_id(block_kind::dense, no_layer, next_++);
    model_.needs.steps.push_back({{{id, bytes(parameters, bits)}}});
    model_.dense_parameters += parameters;
    active_ += parameters;
  }
  void add_mixture(int layer) {
    auto const expert = 3 * product(config_.expert_io(), config_.expert_width);
    auto const shared =
        3 * product(config_.hidden, config_.expert_width) * std::uint64_t(config_.shared_experts);
    auto const router = product(config_.experts, config_.hidden);
    auto const latent = product(2 * config_.hidden + 1, config_.latent_width);
    add_dense(router + shared + latent, model_.dense_bits);
    auto& step = model_.needs.steps.back();
    step.expert_bytes = bytes(expert, model_.expert_bits);
    step.layer = layer_id{static_cast<std::uint32_t>(layer)};
    model_.expert_parameters += static_cast<std::uint64_t>(config_.experts) * expert;
    active_ += static_cast<std::uint64_t>(config_.top_k) * expert;
  }

  model::decoder_config const& config_;
  paper_model& model_;
  std::function<std::uint64_t(std::uint64_t)> const& counted_;
  std::uint32_t next_ = 0;
  std::uint64_t active_ = 0;
};

}  // namespace

std::string describe(paper_model const& model) {
  auto const billions = [](std::uint64_t count) { return static_cast<double>(count) / 1e9; };
  auto text = fmt::format("{}: {:.3f} B parameters, {:.3f} B of them used for a token; ",
                          model.needs.architecture,
                          billions(model.dense_parameters + model.expert_parameters),
                          billions(model.active_parameters));
  if (model.expert_parameters > 0) {
    text += fmt::format("experts at {} bits, ", model.expert_bits);
  }
  return text + fmt::format("dense weights at {} bits\n", model.dense_bits);
}

bool is_bare_config(std::filesystem::path const& model) {
  auto const name = model.filename().string();
  return name.ends_with(".json") && !name.ends_with(".safetensors.index.json");
}

paper_model read_paper_model(std::filesystem::path const& config_path,
                             runtime::pipeline_options const& options,
                             std::function<std::uint64_t(std::uint64_t)> const& counted) {
  if (config_path.filename() != "config.json") {
    throw contract_error{config_path.string() +
                         " is not called config.json; a plan is made from a file of that name"};
  }
  auto const folder =
      config_path.has_parent_path() ? config_path.parent_path() : std::filesystem::path{"."};
  auto const meta = format::read_model_config(folder);
  auto const config = read_decoder_config(meta);
  auto const text = json::parse(read_text_file(config_path));
  paper_model model;
  read_encoding(text.contains("text_config") && !text.contains("quantization_config")
                    ? text["text_config"]
                    : text,
                model);

  auto& needs = model.needs;
  needs.architecture = config.architecture;
  needs.vocab = config.vocab;
  needs.context_limit = config.context;
  needs.context_tokens =
      options.context_tokens > 0 ? options.context_tokens : std::min(config.context, 4096);
  needs.layers = config.layers;
  needs.mixture_layers = config.mixture_layers();
  needs.first_mixture_layer = config.leading_dense;
  needs.experts = config.experts;
  needs.top_k = config.top_k;
  if (needs.context_tokens > config.context) {
    throw contract_error{"a context of " + std::to_string(needs.context_tokens) +
                         " tokens was asked for, but the model was made for " +
                         std::to_string(config.context) + "; ask for at most that"};
  }
  auto const state = sequence::size_state(state_layouts(config, options.half_kv),
                                          static_cast<std::size_t>(needs.context_tokens),
                                          static_cast<std::size_t>(options.snapshots),
                                          counted);
  needs.state_bytes = state.bytes;
  needs.recurrent_bytes = state.recurrent_bytes;
  sizer work{config, model, counted};
  work.tied = meta.try_bool(config.architecture + ".tie_word_embeddings").value_or(false);
  work.size();
  return model;
}

}  // namespace terrace::runner
