// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_recipes.hpp"
#include "shape.hpp"
#include "tensor_list.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/core/quant_type.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::synth {

/// An option that names the type of a class of tensors.
struct type_option {
  std::string_view option;
  tensor_class kind;
  unsigned used_by;  ///< families, as a sum of their values
  std::string_view help;
};
inline constexpr std::array<type_option, 8> type_options{{
    {"--dense-type", tensor_class::dense, any_family, "Type of matrices without an option below"},
    {"--experts-type", tensor_class::experts, mixtures, "Type of routed experts"},
    {"--experts-down-type", tensor_class::experts_down, mixtures, "Type of their last matrix"},
    {"--shared-type", tensor_class::shared, kimi, "Type of shared experts"},
    {"--attention-type", tensor_class::attention, any_family, "Type of attention"},
    {"--embedding-type", tensor_class::embeddings, any_family, "Type of the token embedding"},
    {"--head-type", tensor_class::head, any_family, "Type of the output head"},
    {"--router-type", tensor_class::router, mixtures, "Type of routers"},
}};

/// The types a class of tensors may have in a container, under the names an option takes.
[[nodiscard]] inline std::vector<quant_type> types_for(tensor_class kind, bool safetensors) {
  std::vector<quant_type> types{quant_type::f32, quant_type::f16, quant_type::bf16};
  bool const vocabulary = kind == tensor_class::embeddings || kind == tensor_class::head;
  if (kind == tensor_class::router) { return types; }
  if (!safetensors) {
    for (auto const& recipe : block_recipes) { types.push_back(recipe.type); }
  } else if (!vocabulary) {
    types.push_back(quant_type::fp8_e4m3);
    if (is_expert(kind)) {
      types.insert(types.end(), {quant_type::int4_g32, quant_type::mxfp4_packed});
    }
  }
  return types;
}

/// Errors: contract_error naming the option and what it may be.
[[nodiscard]] inline quant_type type_named(type_option const& option,
                                           std::string_view name,
                                           bool safetensors) {
  auto const types = types_for(option.kind, safetensors);
  // In safetensors a type is called by its plain name: how it is packed is the container's affair.
  auto const named = [&](quant_type type) {
    return name_of(type) == name || (type == quant_type::mxfp4_packed && name == "mxfp4") ||
           (type == quant_type::fp8_e4m3 && name == "fp8") ||
           (type == quant_type::int4_g32 && name == "int4");
  };
  auto const found = std::find_if(types.begin(), types.end(), named);
  if (found != types.end()) { return *found; }
  std::vector<std::string_view> names;
  for (quant_type const type : types) { names.push_back(name_of(type)); }
  throw contract_error{std::string{option.option} + ": `" + std::string{name} +
                       "` is no type that " + (safetensors ? "safetensors" : "GGUF") +
                       " can have there; choose " + list_of(names)};
}

/// The types of a published model, or those it is mostly run with.
[[nodiscard]] inline type_choice usual_types(family which, bool safetensors) {
  type_choice types;
  auto const set = [&](std::initializer_list<tensor_class> kinds, quant_type type) {
    for (tensor_class const kind : kinds) { types[kind] = type; }
  };
  using enum tensor_class;
  if (!safetensors) {
    set({dense, shared, attention, embeddings, head}, quant_type::q8_0);
    set({experts, experts_down}, which == family::kimi_k3 ? quant_type::mxfp4 : quant_type::q4_k);
    set({router}, quant_type::f32);
    return types;
  }
  set({dense, shared, attention, embeddings, head, router, experts, experts_down},
      quant_type::bf16);
  switch (which) {
    case family::llama:
    case family::kimi_linear:
      break;
    case family::minimax_m2:
      set({experts, experts_down, attention}, quant_type::fp8_e4m3);
      set({router}, quant_type::f32);
      break;
    case family::kimi_k2:
      set({experts, experts_down}, quant_type::int4_g32);
      break;
    case family::kimi_k3:
      set({experts, experts_down}, quant_type::mxfp4_packed);
      break;
  }
  return types;
}

/// The types asked for by option, the usual ones elsewhere. What `--dense-type` and
/// `--experts-type` set goes for the classes that belong to them and have no option given.
/// Errors: contract_error for a type the container has not, or mixed experts in safetensors.
[[nodiscard]] inline type_choice chosen_types(
    family which, bool safetensors, std::map<std::string_view, std::string> const& asked) {
  using enum tensor_class;
  type_choice types = usual_types(which, safetensors);
  for (type_option const& option : type_options) {  // the general ones come first
    auto const given = asked.find(option.option);
    if (given == asked.end()) { continue; }
    quant_type const type = type_named(option, given->second, safetensors);
    types[option.kind] = type;
    if (option.kind == experts) { types[experts_down] = type; }
    if (option.kind != dense) { continue; }
    for (tensor_class const kind : {shared, attention, embeddings, head}) {
      auto const fitting = types_for(kind, safetensors);
      bool const fits = std::find(fitting.begin(), fitting.end(), type) != fitting.end();
      if (fits) { types[kind] = type; }
    }
  }
  if (safetensors && types.at(experts) != types.at(experts_down)) {
    throw contract_error{
        "--experts-down-type: the matrices of an expert in safetensors have one type; choose a "
        "GGUF or leave it out"};
  }
  return types;
}

}  // namespace terrace::synth
