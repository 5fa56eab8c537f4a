// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/detail/text.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace terrace::format::detail {

/// What one safetensors tensor contributes to its matrix.
enum class tensor_part : std::uint8_t { weight, packed, scale, shape, ignored, unsupported };

/// Role of a matrix inside an expert.
enum class expert_role : std::uint8_t { none, gate, up, down, gate_up };

/// What the name of a safetensors tensor means.
struct tensor_target {
  std::string
      name;  ///< in GGUF spelling; for a routed expert the name of the stack it would be part of
  tensor_part part = tensor_part::weight;
  expert_role role = expert_role::none;
  bool known = true;                      ///< false for a name that has no meaning here
  std::uint32_t layer = 0;                ///< meaningful when role is not none
  std::optional<std::uint32_t> expert{};  ///< absent for a stack of all experts
};

struct name_pair {
  std::string_view from, to;
};

inline constexpr std::array<name_pair, 5> model_names{{
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"output_attn_res_norm", "output_res_norm"},
    {"output_attn_res_proj", "output_res_proj"},
}};
/// Modules of a layer. Mixtures are called `mlp` or `block_sparse_moe`; the second is read as the
/// first. `g_proj` gates either kind of attention; GGUF calls it `ssm_g` in a recurrent layer,
/// which its name alone does not tell.
inline constexpr std::array<name_pair, 38> layer_names{{
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.g_proj", "attn_gate"},
    {"self_attn.q_conv1d", "ssm_conv1d_q"},
    {"self_attn.k_conv1d", "ssm_conv1d_k"},
    {"self_attn.v_conv1d", "ssm_conv1d_v"},
    {"self_attn.f_a_proj", "ssm_f_a"},
    {"self_attn.f_b_proj", "ssm_f_b"},
    {"self_attn.g_a_proj", "ssm_g_a"},
    {"self_attn.g_b_proj", "ssm_g_b"},
    {"self_attn.b_proj", "ssm_beta"},
    {"self_attn.o_norm", "ssm_norm"},
    {"self_attention_res_norm", "attn_res_norm"},
    {"self_attention_res_proj", "attn_res_proj"},
    {"mlp_res_norm", "ffn_res_norm"},
    {"mlp_res_proj", "ffn_res_proj"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.routed_expert_down_proj", "ffn_routed_down"},
    {"mlp.routed_expert_up_proj", "ffn_routed_up"},
    {"mlp.routed_expert_norm", "ffn_routed_norm"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
}};

template <std::size_t N>
[[nodiscard]] constexpr std::string_view translate(std::array<name_pair, N> const& table,
                                                   std::string_view from) noexcept {
  for (auto const& entry : table) {
    if (entry.from == from) { return entry.to; }
  }
  return {};
}

/// Removes `prefix` from the front of `text` if it is there; returns whether it was.
constexpr bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  bool const there = text.starts_with(prefix);
  if (there) { text.remove_prefix(prefix.size()); }
  return there;
}
/// The text up to the next dot, removed from `text` together with the dot.
constexpr std::string_view take_field(std::string_view& text) noexcept {
  auto const dot = text.find('.');
  std::string_view const field = text.substr(0, dot);
  text.remove_prefix(dot == std::string_view::npos ? text.size() : dot + 1);
  return field;
}

/// Splits "q_proj.weight_scale_inv" into the module and the part; a name without a known ending is
/// its own module.
[[nodiscard]] constexpr std::pair<std::string_view, tensor_part> split_part(
    std::string_view name) noexcept {
  constexpr std::array<std::pair<std::string_view, tensor_part>, 11> endings{{
      {".weight", tensor_part::weight},
      {".weight_packed", tensor_part::packed},
      {".weight_scale", tensor_part::scale},
      {".weight_scale_inv", tensor_part::scale},
      {".weight_shape", tensor_part::shape},
      {".input_scale", tensor_part::ignored},  // for engines that quantise activations
      {".weight_zero_point", tensor_part::unsupported},
      {".weight_g_idx", tensor_part::unsupported},
      {".weight_global_scale", tensor_part::unsupported},
      {".input_global_scale", tensor_part::unsupported},
      {".weight_scale_2", tensor_part::unsupported},
  }};
  for (auto const& [ending, part] : endings) {
    if (name.ends_with(ending)) { return {name.substr(0, name.size() - ending.size()), part}; }
  }
  return {name, tensor_part::weight};
}

[[nodiscard]] constexpr expert_role role_of(std::string_view module) noexcept {
  if (module == "gate_proj" || module == "w1") { return expert_role::gate; }
  if (module == "up_proj" || module == "w3") { return expert_role::up; }
  if (module == "down_proj" || module == "w2") { return expert_role::down; }
  if (module == "gate_up_proj") { return expert_role::gate_up; }
  return expert_role::none;
}
[[nodiscard]] constexpr std::string_view stack_name(expert_role role) noexcept {
  switch (role) {
    case expert_role::gate:
      return "ffn_gate_exps.weight";
    case expert_role::up:
      return "ffn_up_exps.weight";
    case expert_role::gate_up:
      return "ffn_gate_up_exps.weight";
    default:
      return "ffn_down_exps.weight";
  }
}

/// `rest`: what follows "mlp.experts." of layer `layer`; "17.w1.weight", or "gate_up_proj" for a
/// stack.
[[nodiscard]] inline std::optional<tensor_target> expert_target(std::uint32_t layer,
                                                                std::string_view rest) {
  constexpr std::uint32_t most = 1U << 20U;
  tensor_target target;
  target.layer = layer;
  std::string_view after = rest;
  if (auto const expert = parse_index(take_field(after), most)) {
    target.expert = *expert;
    rest = after;
  }
  auto const [module, part] = split_part(rest);
  target.part = part;
  target.role = role_of(module);
  if (target.role == expert_role::none || (target.expert && target.role == expert_role::gate_up)) {
    return std::nullopt;
  }
  target.name = "blk." + std::to_string(layer) + "." + std::string{stack_name(target.role)};
  return target;
}

/// `rest`: what follows "layers.N.".
[[nodiscard]] inline std::optional<tensor_target> layer_target(std::uint32_t layer,
                                                               std::string_view rest) {
  constexpr std::string_view mixture = "block_sparse_moe.";
  std::string const renamed = rest.starts_with(mixture)
                                  ? "mlp." + std::string{rest.substr(mixture.size())}
                                  : std::string{rest};
  std::string_view name = renamed;
  if (take_prefix(name, "mlp.experts.")) { return expert_target(layer, name); }
  std::string const block = "blk." + std::to_string(layer) + ".";
  if (name == "mlp.e_score_correction_bias" || name == "mlp.gate.e_score_correction_bias") {
    return tensor_target{.name = block + "exp_probs_b.bias"};
  }
  // Recurrent layers: the decay as its logarithm, where GGUF has `ssm_a`, -e^A.
  if (name == "self_attn.A_log") { return tensor_target{.name = block + "ssm_a_log"}; }
  if (name == "self_attn.dt_bias") { return tensor_target{.name = block + "ssm_dt.bias"}; }
  if (name.ends_with(".bias")) {
    auto const module = translate(layer_names, name.substr(0, name.size() - 5));
    if (module.empty()) { return std::nullopt; }
    return tensor_target{.name = block + std::string{module} + ".bias"};
  }
  auto const [module, part] = split_part(name);
  auto const known = translate(layer_names, module);
  if (known.empty() || module.size() == name.size()) { return std::nullopt; }
  return tensor_target{.name = block + std::string{known} + ".weight", .part = part};
}

/// Reads the name of a safetensors tensor as the Llama, MiniMax-M2, DeepSeek/Kimi and Kimi-Linear
/// families spell it. A name that means nothing here keeps its own spelling, except that parts of
/// one quantised matrix meet under "X.weight". Tensors of a vision part are nothing.
[[nodiscard]] inline std::optional<tensor_target> target_of(std::string_view name) {
  for (std::string_view const vision :
       {"vision_tower.", "mm_projector.", "multi_modal_projector."}) {
    if (name.starts_with(vision)) { return std::nullopt; }
  }
  constexpr std::uint32_t most_layers = 1U << 20U;
  std::string_view rest = name;
  take_prefix(rest, "language_model.");
  bool const inside = take_prefix(rest, "model.");
  if (inside && take_prefix(rest, "layers.")) {
    auto const layer = parse_index(take_field(rest), most_layers);
    auto target = layer ? layer_target(*layer, rest) : std::nullopt;
    if (target) { return target; }
  } else {
    auto const [module, part] = split_part(rest);
    auto const known =
        inside == (module != "lm_head") ? translate(model_names, module) : std::string_view{};
    if (!known.empty() && module.size() != rest.size()) {
      return tensor_target{.name = std::string{known} + ".weight", .part = part};
    }
  }
  auto const [module, part] = split_part(name);
  bool const own = module.size() == name.size();
  return tensor_target{.name = own ? std::string{name} : std::string{module} + ".weight",
                       .part = part,
                       .known = false};
}

}  // namespace terrace::format::detail
