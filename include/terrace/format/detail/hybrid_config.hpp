// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/format/detail/config_reader.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/detail/text.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::format::detail {

/// What config.json says of recurrent layers and of packed weights.
class hybrid_config : protected config_reader {
 protected:
  using config_reader::config_reader;

  /// `head_count_kv` as GGUF has it, one number a layer: 1 for full attention, 0 for a recurrent
  /// layer. The config counts layers from 1.
  void recurrent_layers() {
    auto const* linear = find("linear_attn_config");
    if (linear == nullptr || !linear->is_object()) { missing("linear_attn_config"); }
    auto const* full = find(*linear, "full_attn_layers");
    if (full == nullptr || !full->is_array()) {
      wrong("linear_attn_config.full_attn_layers", "a list of layer numbers");
    }
    std::vector<std::uint64_t> heads(need_whole("num_hidden_layers") % 4097, 0);
    for (auto const& one : *full) {
      std::uint64_t const layer = whole(one, "linear_attn_config.full_attn_layers");
      if (layer == 0 || layer > heads.size()) {
        throw format_error{source_ + ": `linear_attn_config.full_attn_layers` names layer " +
                           std::to_string(layer) + " of a model of " +
                           std::to_string(heads.size()) + " layers, counted from 1"};
      }
      heads[layer - 1] = 1;
    }
    check_delta_layers(*linear, heads);
    put("attention.head_count_kv", std::move(heads));
    std::uint64_t const attention_heads = need_whole("num_attention_heads");
    auto const* count = find(*linear, "num_heads");
    if (count == nullptr || whole(*count, "linear_attn_config.num_heads") != attention_heads) {
      throw not_supported{source_ + ": `linear_attn_config.num_heads` is not the " +
                          std::to_string(attention_heads) +
                          " of `num_attention_heads`; only equal numbers of heads are computed"};
    }
    auto const need_inner = [&](char const* from, char const* to) {
      auto const* value = find(*linear, from);
      if (value == nullptr) { missing(std::string{"linear_attn_config."} + from); }
      put(to, whole(*value, from));
    };
    need_inner("head_dim", "kda.head_dim");
    need_inner("short_conv_kernel_size", "ssm.conv_kernel");
    auto const bound = try_real(*linear, "gate_lower_bound");
    if (arch_ == "kimi-k3" && !bound) { missing("linear_attn_config.gate_lower_bound"); }
    if (bound) { put("kda.gate_lower_bound", *bound); }
  }

  /// Packed weights have one scale per 32 columns; tensors show whether they are packed at all.
  void packed_groups() const {
    auto const* quantised = find("quantization_config");
    if (quantised == nullptr) { quantised = find(config_, "quantization_config"); }
    if (quantised == nullptr || !quantised->is_object()) { return; }
    auto const* groups = find(*quantised, "config_groups");
    if (groups == nullptr || !groups->is_object()) { return; }
    for (auto const& [name, group] : groups->items()) {
      auto const* weights = group.is_object() ? find(group, "weights") : nullptr;
      auto const* size =
          weights != nullptr && weights->is_object() ? find(*weights, "group_size") : nullptr;
      if (size == nullptr || *size == 32) { continue; }
      throw not_supported{source_ + ": " + in_quotes(name) +
                          " of `quantization_config` has `group_size` " + size->dump() +
                          "; packed weights are read with one scale per 32 columns"};
    }
  }

 private:
  /// Where the config also lists the recurrent layers, they are exactly the others.
  void check_delta_layers(json const& linear, std::span<std::uint64_t const> heads) const {
    auto const* listed = find(linear, "kda_layers");
    if (listed == nullptr) { return; }
    std::vector<std::uint64_t> other(heads.size(), 1);
    for (auto const& one : *listed) {
      std::uint64_t const layer = whole(one, "linear_attn_config.kda_layers");
      if (layer > 0 && layer <= other.size()) { other[layer - 1] = 0; }
    }
    if (listed->is_array() && std::equal(other.begin(), other.end(), heads.begin())) { return; }
    throw format_error{source_ +
                       ": `linear_attn_config.kda_layers` and `full_attn_layers` do not name each "
                       "of the " +
                       std::to_string(heads.size()) + " layers once; the configuration is damaged"};
  }
};

}  // namespace terrace::format::detail
