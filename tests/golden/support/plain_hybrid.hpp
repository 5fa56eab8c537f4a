// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/kernel/reference/expert_ffn.hpp>
#include <terrace/kernel/reference/kda.hpp>
#include <terrace/kernel/reference/matmul.hpp>
#include <terrace/kernel/reference/norm.hpp>
#include <terrace/kernel/reference/residual_bank.hpp>
#include <terrace/kernel/reference/route.hpp>
#include <terrace/model/config.hpp>
#include <terrace/quant/decode.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace::golden {

/// Kimi K3 and Kimi-Linear in plain loops, written from the description of the models and not from
/// the pipeline: the whole prompt at once, nothing cached, keys and values of every head spelled
/// out, every weight read when it is used.
class plain_hybrid {
  using rows = std::vector<float>;  ///< [tokens, width]

 public:
  plain_hybrid(format::catalog const& catalog, model::decoder_config config)
      : catalog_{catalog}, c_{std::move(config)} {}

  /// Logits [vocab] after the last of `ids`.
  [[nodiscard]] rows logits(std::span<std::int32_t const> ids) {
    tokens_ = ids.size();
    bank_.clear();
    auto const table = values("token_embd.weight");
    std::size_t const hidden = static_cast<std::size_t>(c_.hidden);
    sum_.clear();
    for (auto const id : ids) {
      auto const row = table.begin() + static_cast<std::ptrdiff_t>(hidden) * id;
      sum_.insert(sum_.end(), row, row + c_.hidden);
    }
    for (int layer = 0; layer < c_.layers; ++layer) {
      prefix_ = "blk." + std::to_string(layer) + ".";
      auto const x = read_stream(prefix_ + "attn");
      if (c_.bank_block > 0 && layer % c_.bank_block == 0) {
        bank_.push_back(sum_);
        sum_.assign(sum_.size(), 0.0F);
      }
      add(c_.is_recurrent(layer) ? delta_attention(x) : latent_attention(x), sum_);
      auto const y = read_stream(prefix_ + "ffn");
      add(c_.is_mixture(layer) ? mixture(y, layer) : mlp(y, ""), sum_);
    }
    auto const out = read_stream("output");
    rows const last{out.end() - c_.hidden, out.end()};
    bool const tied = catalog_.find("output.weight") == nullptr;
    tokens_ = 1;
    return product(tied ? "token_embd.weight" : "output.weight", last);
  }

 private:
  struct weight {
    std::vector<std::byte> bytes;
    std::vector<matrix_layout> layouts;
    [[nodiscard]] matrix_view matrix(std::size_t i = 0) const {
      return view_at(layouts[i], bytes.data());
    }
  };
  [[nodiscard]] weight read(block_info const& info) const {
    weight one{std::vector<std::byte>(info.bytes), info.matrices};
    for (auto const& piece : info.extents) {
      format::file_source const file{catalog_.files()[static_cast<std::size_t>(piece.from.file)]};
      file.read(piece.from.offset, std::span{one.bytes}.subspan(piece.to_offset, piece.from.bytes));
    }
    return one;
  }
  [[nodiscard]] weight read(std::string const& name) const {
    return read(*catalog_.find_block(catalog_.get(name).block));
  }
  [[nodiscard]] bool has(std::string const& name) const { return catalog_.find(name) != nullptr; }
  [[nodiscard]] rows values(std::string const& name) const {
    auto const one = read(name);
    rows all(one.matrix().rows * one.matrix().cols);
    quant::decode_rows(one.matrix(), 0, one.matrix().rows, all);
    return all;
  }
  [[nodiscard]] rows product(matrix_view const& w, rows const& x) const {
    std::size_t const count = x.size() / w.cols;
    rows y(count * w.rows);
    kernel::reference::matmul(w, x.data(), count, y.data(), w.rows);
    return y;
  }
  [[nodiscard]] rows product(std::string const& name, rows const& x) const {
    return product(read(name).matrix(), x);
  }
  [[nodiscard]] rows normed(rows const& x, rows const& w, float eps) const {
    rows y(x.size());
    kernel::reference::rms_norm(x.data(), w.data(), eps, x.size() / w.size(), w.size(), y.data());
    return y;
  }
  static void add(rows const& x, rows& to) {
    for (std::size_t i = 0; i < x.size(); ++i) { to[i] += x[i]; }
  }

  [[nodiscard]] rows read_stream(std::string const& point) const {
    rows x = sum_;
    if (!bank_.empty()) {
      std::vector<float const*> candidates;
      for (auto const& one : bank_) { candidates.push_back(one.data()); }
      candidates.push_back(sum_.data());
      auto score = has(point + "_res_score.weight") ? values(point + "_res_score.weight")
                                                    : values(point + "_res_norm.weight");
      if (!has(point + "_res_score.weight")) {
        auto const other = values(point + "_res_proj.weight");
        for (std::size_t i = 0; i < score.size(); ++i) { score[i] *= other[i]; }
      }
      kernel::reference::mix_bank(
          candidates, score.data(), c_.norm_eps, tokens_, score.size(), x.data());
    }
    return normed(x, values(point + "_norm.weight"), c_.norm_eps);
  }

  [[nodiscard]] rows activated(rows const& gate, rows const& up) const {
    rows y(gate.size());
    auto const& how = c_.activation;
    if (how.type == gated_activation::kind::situ) {
      kernel::reference::situ(
          gate.data(), up.data(), how.beta, how.linear_beta, y.size(), y.data());
    } else {
      kernel::reference::swiglu(gate.data(), up.data(), y.size(), y.data());
    }
    return y;
  }
  [[nodiscard]] rows mlp(rows const& x, std::string const& suffix) const {
    auto const name = [&](char const* part) { return prefix_ + part + suffix + ".weight"; };
    return product(name("ffn_down"),
                   activated(product(name("ffn_gate"), x), product(name("ffn_up"), x)));
  }

  [[nodiscard]] rows mixture(rows const& x, int layer) const {
    auto const scores = product(prefix_ + "ffn_gate_inp.weight", x);
    auto const bias = values(prefix_ + "exp_probs_b.bias");
    rows const in = c_.latent_width > 0 ? product(prefix_ + "ffn_routed_down.weight", x) : x;
    std::size_t const width = in.size() / tokens_;
    rows sum(in.size());
    for (std::size_t t = 0; t < tokens_; ++t) {
      auto const at = [&](rows const& all, std::size_t cols) {
        auto const first = all.begin() + static_cast<std::ptrdiff_t>(t * cols);
        return rows{first, first + static_cast<std::ptrdiff_t>(cols)};
      };
      auto const chosen =
          kernel::reference::route_sigmoid(at(scores, static_cast<std::size_t>(c_.experts)),
                                           bias,
                                           static_cast<std::size_t>(c_.top_k),
                                           c_.normalise_weights,
                                           c_.weights_scale);
      auto const token = at(in, width);
      for (std::size_t i = 0; i < chosen.experts.size(); ++i) {
        auto const expert = read(*catalog_.find_block(expert_block(
            layer_id{static_cast<std::uint32_t>(layer)}, expert_id(chosen.experts[i]))));
        auto const out =
            product(expert.matrix(2),
                    activated(product(expert.matrix(0), token), product(expert.matrix(1), token)));
        for (std::size_t j = 0; j < width; ++j) {
          sum[t * width + j] += chosen.weights[i] * out[j];
        }
      }
    }
    if (c_.latent_width > 0) {
      sum = product(prefix_ + "ffn_routed_up.weight",
                    normed(sum, values(prefix_ + "ffn_routed_norm.weight"), c_.norm_eps));
    }
    if (c_.shared_experts > 0) { add(mlp(x, "_shexp"), sum); }
    return sum;
  }

  [[nodiscard]] rows delta_attention(rows const& x) const {
    auto const& shape = c_.kda;
    rows all[3];
    std::string const names[] = {"q", "k", "v"};
    for (std::size_t i = 0; i < 3; ++i) {
      auto const in = product(prefix_ + "attn_" + names[i] + ".weight", x);
      auto const taps = values(prefix_ + "ssm_conv1d_" + names[i] + ".weight");
      rows history(shape.history_values());
      all[i].resize(in.size());
      kernel::reference::short_convolution(in.data(),
                                           taps.data(),
                                           shape.taps,
                                           tokens_,
                                           shape.width(),
                                           history.data(),
                                           all[i].data());
    }
    auto const z = product(prefix_ + "ssm_f_b.weight", product(prefix_ + "ssm_f_a.weight", x));
    auto const beta = product(prefix_ + "ssm_beta.weight", x);
    bool const logarithm = !has(prefix_ + "ssm_a");
    auto rate = values(prefix_ + (logarithm ? "ssm_a_log" : "ssm_a"));
    for (float& one : rate) { one = logarithm ? std::exp(one) : -one; }
    auto const bias = values(prefix_ + "ssm_dt.bias");
    rows state(shape.matrix_values());
    rows out(tokens_ * shape.width());
    kernel::reference::kda(shape,
                           {all[0].data(),
                            all[1].data(),
                            all[2].data(),
                            z.data(),
                            beta.data(),
                            rate.data(),
                            bias.data()},
                           tokens_,
                           state.data(),
                           out.data());
    auto const gate =
        has(prefix_ + "ssm_g.weight")
            ? product(prefix_ + "ssm_g.weight", x)
            : product(prefix_ + "ssm_g_b.weight", product(prefix_ + "ssm_g_a.weight", x));
    auto const norm = values(prefix_ + "ssm_norm.weight");
    rows y(out.size());
    kernel::reference::gated_norm(out.data(),
                                  norm.data(),
                                  gate.data(),
                                  c_.norm_eps,
                                  tokens_ * shape.heads,
                                  shape.dim,
                                  y.data());
    return product(prefix_ + "attn_output.weight", y);
  }

  /// Keys and values of all heads from the normed latents: [tokens, heads, nope + value].
  [[nodiscard]] rows keys_and_values(rows const& latents) const {
    if (has(prefix_ + "attn_kv_b.weight")) {
      return product(prefix_ + "attn_kv_b.weight", latents);
    }
    auto const heads = static_cast<std::size_t>(c_.heads);
    auto const rank = static_cast<std::size_t>(c_.kv_lora);
    auto const nope = static_cast<std::size_t>(c_.nope_dim);
    auto const value = static_cast<std::size_t>(c_.value_dim);
    auto const k_b = values(prefix_ + "attn_k_b.weight");  // [heads, rank, nope]
    auto const v = product(prefix_ + "attn_v_b.weight", latents);
    rows all(tokens_ * heads * (nope + value));
    for (std::size_t t = 0; t < tokens_; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        float* const to = all.data() + (t * heads + h) * (nope + value);
        for (std::size_t i = 0; i < nope; ++i) {
          double sum = 0;
          for (std::size_t j = 0; j < rank; ++j) {
            sum += double{k_b[(h * rank + j) * nope + i]} * latents[t * rank + j];
          }
          to[i] = static_cast<float>(sum);
        }
        for (std::size_t i = 0; i < value; ++i) { to[nope + i] = v[(t * heads + h) * value + i]; }
      }
    }
    return all;
  }

  [[nodiscard]] rows latent_attention(rows const& x) const {
    constexpr float inner_eps = 1e-6F;
    auto const heads = static_cast<std::size_t>(c_.heads);
    auto const rank = static_cast<std::size_t>(c_.kv_lora);
    auto const nope = static_cast<std::size_t>(c_.nope_dim);
    auto const shared = static_cast<std::size_t>(c_.rope_dim);
    auto const value = static_cast<std::size_t>(c_.value_dim);
    rows const q = c_.q_lora > 0 ? product(prefix_ + "attn_q_b.weight",
                                           normed(product(prefix_ + "attn_q_a.weight", x),
                                                  values(prefix_ + "attn_q_a_norm.weight"),
                                                  inner_eps))
                                 : product(prefix_ + "attn_q.weight", x);
    auto const row = product(prefix_ + "attn_kv_a_mqa.weight", x);
    rows latents, keys;
    for (std::size_t t = 0; t < tokens_; ++t) {
      auto const at = row.begin() + static_cast<std::ptrdiff_t>(t * (rank + shared));
      latents.insert(latents.end(), at, at + c_.kv_lora);
      keys.insert(keys.end(), at + c_.kv_lora, at + c_.kv_lora + c_.rope_dim);
    }
    latents = normed(latents, values(prefix_ + "attn_kv_a_norm.weight"), inner_eps);
    auto const kv = keys_and_values(latents);
    rows out(tokens_ * heads * value);
    std::vector<double> share(tokens_);
    for (std::size_t t = 0; t < tokens_; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        float const* const query = q.data() + (t * heads + h) * (nope + shared);
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          float const* const key = kv.data() + (s * heads + h) * (nope + value);
          double score = 0;
          for (std::size_t i = 0; i < nope; ++i) { score += double{query[i]} * key[i]; }
          for (std::size_t i = 0; i < shared; ++i) {
            score += double{query[nope + i]} * keys[s * shared + i];
          }
          share[s] = std::exp(score / std::sqrt(static_cast<double>(nope + shared)));
          total += share[s];
        }
        for (std::size_t i = 0; i < value; ++i) {
          double sum = 0;
          for (std::size_t s = 0; s <= t; ++s) {
            sum += share[s] / total * kv[(s * heads + h) * (nope + value) + nope + i];
          }
          out[(t * heads + h) * value + i] = static_cast<float>(sum);
        }
      }
    }
    if (has(prefix_ + "attn_gate.weight")) {
      auto const gate = product(prefix_ + "attn_gate.weight", x);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] *= static_cast<float>(kernel::reference::sigmoid(gate[i]));
      }
    }
    return product(prefix_ + "attn_output.weight", out);
  }

  format::catalog const& catalog_;
  model::decoder_config c_;
  std::size_t tokens_ = 0;
  std::string prefix_;
  std::vector<rows> bank_;
  rows sum_;
};

}  // namespace terrace::golden
