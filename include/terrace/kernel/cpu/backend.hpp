// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/kernel/cpu/cpu.hpp>
#include <terrace/kernel/cpu/head_product.hpp>
#include <terrace/quant/decode.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace terrace::kernel::cpu {

/// The kernels of this folder bound to one team of threads and one numerics: what a model computes
/// with.
///
/// Small vectors (norm weights, router biases) are given as they lie in their block and decoded on
/// use.
class backend {
 public:
  using activations = cpu::activations;
  using rope_table = cpu::rope_table;
  using expert_task = cpu::expert_task;
  using head_task = cpu::head_task;
  static constexpr char const* name = "cpu";

  backend(int threads, numerics mode) : pool_{threads}, mode_{mode} {}

  [[nodiscard]] numerics mode() const noexcept { return mode_; }

  /// Makes x [tokens, cols] ready for products; x must stay unchanged while they read it.
  void prepare(activations& into, float const* x, std::size_t tokens, std::size_t cols) {
    into.assign(pool_, mode_, x, tokens, cols, cols);
  }
  /// y [tokens, w.rows] = w x
  void matmul(matrix_view const& w, activations const& x, float* y) {
    cpu::matmul(pool_, w, x, y, w.rows);
  }
  /// The same with float32 activations whatever the numerics.
  void matmul_exact(matrix_view const& w, float const* x, std::size_t tokens, float* y) {
    exact_.assign(pool_, numerics::exact, x, tokens, w.cols, w.cols);
    cpu::matmul(pool_, w, exact_, y, w.rows);
  }
  void head_products(std::span<head_task const> heads, std::size_t tokens) {
    cpu::head_products(pool_, heads, tokens);
  }
  void decode_rows(matrix_view const& w, std::span<std::uint32_t const> rows, float* out) {
    cpu::decode_rows(w, rows, out);
  }
  /// y = weight * x / rms(x), rows of weight.cols values; y may be x.
  void rms_norm(
      float const* x, matrix_view const& weight, float eps, std::size_t tokens, float* y) {
    cpu::rms_norm(pool_, x, vector(weight), eps, tokens, weight.cols, y);
  }
  void rope(float* x, rope_shape const& shape, rope_table const& angles) {
    cpu::rope(pool_, x, shape, angles);
  }
  /// Angles for positions [first, first + count).
  static void make_angles(rope_table& into,
                          std::size_t first,
                          std::size_t count,
                          std::span<float const> frequencies,
                          float magnitude) {
    std::vector<std::uint32_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<std::uint32_t>(first));
    into.assign(positions, frequencies, magnitude);
  }
  void store_kv(attention_shape const& shape,
                float const* k,
                float const* v,
                kv_pages const& cache) {
    cpu::store_kv(pool_, shape, k, v, cache);
  }
  void attention(attention_shape const& shape, float const* q, kv_pages const& cache, float* out) {
    cpu::attention(pool_, shape, q, cache, out);
  }
  void swiglu(float const* gate, float const* up, std::size_t count, float* y) {
    cpu::swiglu(pool_, gate, up, count, y);
  }
  void add(float const* x, std::size_t count, float* y) { cpu::add(pool_, x, count, y); }
  void route(sigmoid_router const& router,
             float const* logits,
             matrix_view const& bias,
             std::size_t tokens,
             expert_id* ids,
             float* weights) {
    cpu::route_sigmoid(pool_, router, logits, vector(bias), tokens, ids, weights);
  }
  void expert_ffn(activations const& x, std::span<expert_task const> tasks) {
    cpu::expert_ffn(pool_, x, tasks, scratch_);
  }
  /// sum[tokens[i]] += weights[i] * rows[i], rows of `cols` values, in the order given.
  void add_weighted_rows(float const* rows,
                         std::span<std::uint32_t const> tokens,
                         std::span<float const> weights,
                         std::size_t cols,
                         float* sum) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      cpu::add_scaled(pool_, weights[i], rows + i * cols, cols, sum + tokens[i] * cols);
    }
  }

 private:
  /// The values of a vector: in place when they are float32 at an aligned address, else decoded
  /// into a buffer that the next call reuses.
  [[nodiscard]] float const* vector(matrix_view const& one) {
    bool const aligned = reinterpret_cast<std::uintptr_t>(one.data) % alignof(float) == 0;
    if (one.type == quant_type::f32 && aligned && one.multiplier == 1.0F) {
      return reinterpret_cast<float const*>(one.data);
    }
    decoded_.resize(one.cols);
    quant::decode_row(one, 0, decoded_);
    return decoded_.data();
  }

  thread_pool pool_;
  numerics mode_;
  activations exact_;
  ffn_scratch scratch_;
  std::vector<float> decoded_;
};

}  // namespace terrace::kernel::cpu
