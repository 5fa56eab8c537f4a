// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "filler.hpp"
#include "tensor_list.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/quant_type.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace terrace::synth {

/// A tensor as it lies in a file.
struct stored_tensor {
  std::string name;
  quant_type type = quant_type::f32;  ///< GGUF
  std::string_view dtype;             ///< safetensors
  std::vector<std::uint64_t> shape;   ///< slowest dimension first
  std::uint64_t bytes = 0;
  filler data;
};

/// A tensor class written in another type than asked for, because its rows are not whole blocks.
struct substitution {
  std::string tensor;  ///< the first of them
  std::uint64_t columns = 0;
  quant_type asked = quant_type::f32;
  quant_type used = quant_type::f32;
};

/// Turns the tensors of a model into those of a container.
class tensor_storer {
 public:
  explicit tensor_storer(type_choice types) : types_{std::move(types)} {}

  [[nodiscard]] std::vector<stored_tensor> for_gguf(std::vector<model_tensor> const& model) {
    for (model_tensor const& tensor : model) {
      if (tensor.gguf.empty()) { continue; }
      quant_type const type = type_of(tensor, {quant_type::q8_0, quant_type::bf16});
      auto shape = tensor.shape;
      if (tensor.gguf.find("ssm_conv1d") != std::string::npos) { shape.insert(shape.begin(), 1); }
      double sigma = tensor.sigma;
      put({.name = tensor.gguf,
           .type = type,
           .dtype = {},
           .shape = std::move(shape),
           .data =
               find_recipe(type) != nullptr ? random_blocks(type, sigma) : plain(tensor, type)});
      if (type == quant_type::nvfp4) {
        auto const stem = tensor.gguf.substr(0, tensor.gguf.rfind(".weight"));
        auto const scale = static_cast<float>(sigma / block_maker::unit_rms(type));
        put({.name = stem + ".scale",
             .type = quant_type::f32,
             .dtype = {},
             .shape = {1},
             .data = given_values(std::span{&scale, 1})});
      }
    }
    return std::move(out_);
  }

  [[nodiscard]] std::vector<stored_tensor> for_safetensors(std::vector<model_tensor> const& model) {
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (model[i].hf.empty()) { continue; }
      if (!is_expert(model[i].kind)) {
        safetensor(model[i], model[i].hf, model[i].shape);
        continue;
      }
      std::size_t end = i;  // the matrices of an expert lie side by side
      while (end < model.size() && is_expert(model[end].kind)) { ++end; }
      for (std::uint64_t expert = 0; expert < model[i].shape[0]; ++expert) {
        for (std::size_t part = i; part < end; ++part) {
          auto name = model[part].hf;
          name.replace(name.find("{}"), 2, std::to_string(expert));
          safetensor(model[part], name, {model[part].shape[1], model[part].shape[2]});
        }
      }
      i = end - 1;
    }
    return std::move(out_);
  }

  /// One for each pair of a class and a type that did not fit it.
  [[nodiscard]] std::vector<substitution> const& substitutions() const noexcept {
    return substitutions_;
  }

 private:
  [[nodiscard]] quant_type type_of(model_tensor const& tensor,
                                   std::initializer_list<quant_type> instead) {
    if (tensor.kind == tensor_class::fixed) { return quant_type::f32; }
    quant_type const asked = types_.at(tensor.kind);
    std::uint64_t const columns = tensor.shape.back();
    auto const fits = [&](quant_type type) {
      return columns % traits_of(type).block_elements == 0;
    };
    if (fits(asked)) { return asked; }
    quant_type const used = *std::find_if(instead.begin(), instead.end(), fits);
    bool const known =
        std::any_of(substitutions_.begin(), substitutions_.end(), [&](auto const& one) {
          return one.columns == columns && one.asked == asked;
        });
    if (!known) {
      substitutions_.push_back(
          {tensor.gguf.empty() ? tensor.hf : tensor.gguf, columns, asked, used});
    }
    return used;
  }

  static filler plain(model_tensor const& tensor, quant_type type) {
    if (tensor.values.empty()) { return normal_values(type, tensor.mean, tensor.sigma); }
    return given_values(std::span{tensor.values});
  }

  /// A matrix or vector and what scales it.
  void safetensor(model_tensor const& tensor,
                  std::string const& name,
                  std::vector<std::uint64_t> const& shape) {
    quant_type type = type_of(tensor, {quant_type::bf16});
    if (tensor.kind == tensor_class::fixed && !tensor.wide) { type = quant_type::bf16; }
    if (tensor.kind == tensor_class::router && tensor.wide) { type = quant_type::f32; }
    auto const beside = [&](char const* ending) {
      return name.substr(0, name.rfind(".weight")) + ending;
    };
    std::uint64_t const rows = shape[0], cols = shape.back();
    double const uneven = std::sqrt(uneven_mean_square);
    switch (type) {
      case quant_type::fp8_e4m3: {
        put(name, "F8_E4M3", shape, fp8());
        put(beside(".weight_scale_inv"),
            "F32",
            {(rows + 127) / 128, (cols + 127) / 128},
            once(type, 0, tensor.sigma, [&] {
              return uneven_scales(quant_type::f32, tensor.sigma / fp8_rms_ / uneven);
            }));
        return;
      }
      case quant_type::int4_g32: {
        put(beside(".weight_packed"), "I32", {rows, cols / 8}, int4_words());
        put(beside(".weight_scale"), "BF16", {rows, cols / 32}, once(type, 0, tensor.sigma, [&] {
              return uneven_scales(quant_type::bf16, tensor.sigma / int4_rms / uneven);
            }));
        std::array<std::int32_t, 2> const size{static_cast<std::int32_t>(rows),
                                               static_cast<std::int32_t>(cols)};
        put(beside(".weight_shape"), "I32", {2}, given_values(std::span<std::int32_t const>{size}));
        return;
      }
      case quant_type::mxfp4_packed:
        put(beside(".weight_packed"), "U8", {rows, cols / 2}, raw_bytes(16));
        put(beside(".weight_scale"), "U8", {rows, cols / 32}, once(type, 0, tensor.sigma, [&] {
              return e8m0_scales(tensor.sigma);
            }));
        return;
      default:
        put(name,
            type == quant_type::f32   ? "F32"
            : type == quant_type::f16 ? "F16"
                                      : "BF16",
            shape,
            tensor.values.empty()
                ? once(type, tensor.mean, tensor.sigma, [&] { return plain(tensor, type); })
                : plain(tensor, type));
    }
  }

  /// Tables are made once for all tensors that are alike.
  [[nodiscard]] filler const& fp8() {
    if (fp8_rms_ == 0) { fp8_ = fp8_codes(fp8_rms_); }
    return fp8_;
  }
  template <class Make>
  [[nodiscard]] filler const& once(quant_type type, double mean, double sigma, Make make) {
    auto const [slot, fresh] = made_.try_emplace(std::tuple{type, mean, sigma}, filler{});
    if (fresh) { slot->second = make(); }
    return slot->second;
  }

  void put(std::string name,
           std::string_view dtype,
           std::vector<std::uint64_t> shape,
           filler data) {
    quant_type const type = dtype == "F32" || dtype == "I32"    ? quant_type::f32
                            : dtype == "BF16" || dtype == "F16" ? quant_type::bf16
                                                                : quant_type::i8;
    put({.name = std::move(name),
         .type = type,
         .dtype = dtype,
         .shape = std::move(shape),
         .data = std::move(data)});
  }
  void put(stored_tensor tensor) {
    tensor.bytes = row_bytes(tensor.type, tensor.shape.back());
    for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) { tensor.bytes *= tensor.shape[i]; }
    out_.push_back(std::move(tensor));
  }

  type_choice types_;
  std::vector<stored_tensor> out_;
  std::vector<substitution> substitutions_;
  filler fp8_;
  double fp8_rms_ = 0;
  std::map<std::tuple<quant_type, double, double>, filler> made_;
};

}  // namespace terrace::synth
