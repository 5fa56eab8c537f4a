// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/quant_type.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/quant/encode.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::quantize {

/// Tensors whose name `pattern` is found in are written as `type`.
struct name_rule {
  std::regex pattern;
  quant_type type;
};

/// Which type each tensor of a model is written as.
struct type_rules {
  quant_type dense = quant_type::q4_k;
  std::optional<quant_type> experts{};  ///< routed experts; as dense if not given
  std::optional<quant_type> vocab{};    ///< token embedding and output head; as dense if not given
  std::vector<name_rule> by_name{};     ///< the first that matches wins over the above
  /// For rows that are not whole blocks of the type asked for: the first of these that fits.
  std::vector<quant_type> fallback{quant_type::q8_0};

  /// Nothing for a tensor that is copied as it is: one that is no matrix of floating-point numbers,
  /// is a norm, router, convolution or bias, or whose rows fit neither its type nor a fallback.
  [[nodiscard]] std::optional<quant_type> type_of(format::gguf_tensor const& tensor) const {
    if (!is_weight_matrix(tensor)) { return std::nullopt; }
    auto const fits = [&](quant_type type) {
      return tensor.dims[0] % traits_of(type).block_elements == 0;
    };
    if (quant_type const wanted = wanted_for(tensor.name); fits(wanted)) { return wanted; }
    auto const other = std::find_if(fallback.begin(), fallback.end(), fits);
    return other == fallback.end() ? std::nullopt : std::optional{*other};
  }

  /// The type asked for, whether or not rows fit it.
  [[nodiscard]] quant_type wanted_for(std::string const& name) const {
    for (auto const& rule : by_name) {
      if (std::regex_search(name, rule.pattern)) { return rule.type; }
    }
    if (name.find("_exps.") != std::string::npos) { return experts.value_or(dense); }
    if (name == "token_embd.weight" || name == "output.weight") { return vocab.value_or(dense); }
    return dense;
  }

 private:
  [[nodiscard]] static bool is_weight_matrix(format::gguf_tensor const& tensor) {
    bool const floating = tensor.type == quant_type::f32 || tensor.type == quant_type::f16 ||
                          tensor.type == quant_type::bf16 || tensor.type == quant_type::f64;
    auto const named = [&](std::string_view part) {
      return tensor.name.find(part) != std::string::npos;
    };
    return floating && tensor.dims.size() >= 2 && tensor.name.ends_with(".weight") &&
           !named("_norm") && !named("ffn_gate_inp") && !named("conv1d");
  }
};

/// The number that `general.file_type` uses for a file that is mostly of one type.
[[nodiscard]] constexpr std::optional<std::uint64_t> file_type_of(quant_type type) noexcept {
  switch (type) {
    case quant_type::f32:
      return 0;
    case quant_type::f16:
      return 1;
    case quant_type::q4_0:
      return 2;
    case quant_type::q4_1:
      return 3;
    case quant_type::q8_0:
      return 7;
    case quant_type::q2_k:
      return 10;
    case quant_type::q3_k:
      return 11;
    case quant_type::q4_k:
      return 14;
    case quant_type::q5_k:
      return 16;
    case quant_type::q6_k:
      return 18;
    case quant_type::bf16:
      return 32;
    case quant_type::tq1_0:
      return 36;
    case quant_type::tq2_0:
      return 37;
    case quant_type::mxfp4:
      return 38;
    default:
      return std::nullopt;
  }
}

}  // namespace terrace::quantize
