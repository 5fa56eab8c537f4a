// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/bank_score.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/gated_activation.hpp>
#include <terrace/core/head_product.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/kda_values.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cpu/cpu.hpp>
#include <terrace/kernel/cpu/head_product.hpp>
#include <terrace/quant/decode.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
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
  /// Memory the kernels work on: `data`, and `resize` below.
  template <class T>
  using buffer = std::vector<T>;
  static constexpr char const* name = "cpu";
  static constexpr bool on_device = false;

  backend(int threads, numerics mode) : pool_{threads}, mode_{mode} {}

  [[nodiscard]] numerics mode() const noexcept { return mode_; }

  /// The queue that leases of what the kernels read end on.
  [[nodiscard]] static constexpr stream_ref stream() noexcept { return stream_ref::host(); }

  /// What a caller holds while it computes: nothing here; on a device, the choice of the device.
  struct scope {};
  [[nodiscard]] static constexpr scope enter() noexcept { return {}; }
  /// Returns once all work is done, as it is here whenever a call returns.
  static constexpr void drain() noexcept {}

  /// What follows, until the next call, computes `ids`, the first of them at `first_position`.
  void begin_step(std::size_t first_position, std::span<std::int32_t const> ids) {
    first_position_ = first_position;
    rows_.assign(ids.begin(), ids.end());
  }

  /// Room for `count` values; what is kept of the old ones is not said.
  template <class T>
  static void resize(buffer<T>& one, std::size_t count) {
    one.resize(count);
  }
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
  void head_products(head_product const& all, std::size_t tokens) {
    heads_.clear();
    for (std::size_t head = 0; head < all.heads; ++head) {
      heads_.push_back(
          {.factor = all.factors.rows_from(all.first_row + head * all.row_stride, all.rows),
           .transposed = all.transposed,
           .in = all.in + head * all.in_head_stride,
           .in_stride = all.in_token_stride,
           .out = all.out + head * all.out_head_stride,
           .out_stride = all.out_token_stride});
    }
    cpu::head_products(pool_, heads_, tokens);
  }
  /// out [tokens, w.cols]: the rows of `w` numbered by the ids of this step, as float32.
  void embed(matrix_view const& w, float* out) const { cpu::decode_rows(w, rows_, out); }
  /// y = weight * x / rms(x), rows of weight.cols values; y may be x.
  void rms_norm(
      float const* x, matrix_view const& weight, float eps, std::size_t tokens, float* y) {
    cpu::rms_norm(pool_, x, vector(weight), eps, tokens, weight.cols, y);
  }
  /// The first weight.cols values of each of `rows` rows that lie `stride` floats apart, in place.
  void rms_norm_part(
      float* x, std::size_t stride, matrix_view const& weight, float eps, std::size_t rows) {
    float const* const factors = vector(weight);
    for (std::size_t row = 0; row < rows; ++row) {
      float* const one = x + row * stride;
      cpu::rms_norm(pool_, one, factors, eps, 1, weight.cols, one);
    }
  }
  void rope(float* x, rope_shape const& shape, rope_table const& angles) {
    cpu::rope(pool_, x, shape, angles);
  }
  /// Angles for the positions of this step.
  void make_angles(rope_table& into, std::span<float const> frequencies, float magnitude) const {
    std::vector<std::uint32_t> positions(rows_.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::uint32_t>(first_position_));
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
  /// y[i] = the activation of gate[i] and up[i]; y may be either.
  void activate(gated_activation const& how,
                float const* gate,
                float const* up,
                std::size_t count,
                float* y) {
    cpu::activate(pool_, how, gate, up, count, y);
  }
  /// y[i] *= sigmoid(gate[i])
  void multiply_sigmoid(float const* gate, std::size_t count, float* y) {
    cpu::multiply_sigmoid(pool_, gate, count, y);
  }
  void add(float const* x, std::size_t count, float* y) { cpu::add(pool_, x, count, y); }
  void zero(float* x, std::size_t count) { std::fill_n(x, count, 0.0F); }
  /// Copies `count` values of each of `rows` rows; strides in floats.
  void copy_columns(float const* from,
                    std::size_t from_stride,
                    float* to,
                    std::size_t to_stride,
                    std::size_t count,
                    std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) {
      std::copy_n(from + row * from_stride, count, to + row * to_stride);
    }
  }
  /// The values of backend memory where the host can read them: here they are there already.
  /// Valid until the memory or `into` changes.
  template <class T>
  [[nodiscard]] std::span<T const> read(T const* values,
                                        std::size_t count,
                                        std::vector<T>& /*into*/) const noexcept {
    return {values, count};
  }
  /// The pages of each layer of one sequence, as kernels read them.
  class page_lists {
   public:
    [[nodiscard]] std::span<std::byte* const> layer(std::size_t index) const noexcept {
      return lists_[index];
    }

   private:
    friend class backend;
    std::vector<std::span<std::byte* const>> lists_;
  };
  /// Room for the lists of `layers` layers of at most `pages` pages.
  static void reserve_pages(page_lists& all, std::size_t layers, std::size_t /*pages*/) {
    all.lists_.resize(layers);
  }
  /// The pages of a layer have grown or were given back.
  static void set_pages(page_lists& all, std::size_t layer, std::span<std::byte* const> pages) {
    all.lists_[layer] = pages;
  }
  void route(sigmoid_router const& router,
             float const* logits,
             matrix_view const& bias,
             std::size_t tokens,
             expert_id* ids,
             float* weights) {
    cpu::route_sigmoid(pool_, router, logits, vector(bias), tokens, ids, weights);
  }
  void expert_ffn(activations const& x,
                  std::span<expert_task const> tasks,
                  gated_activation const& activation = {}) {
    cpu::expert_ffn(pool_, x, tasks, scratch_, activation);
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

  /// silu of convolution `which` (0 q, 1 k, 2 v) in place: x [tokens, width], taps [width, taps].
  /// `state` is the one page of the layer, laid out as kda_shape says; its history moves on.
  void short_convolution(kda_shape const& shape,
                         std::size_t which,
                         matrix_view const& taps,
                         std::size_t tokens,
                         std::span<std::byte* const> state,
                         float* x) {
    float* const history = values_of(shape, state) + shape.history_offset(which);
    cpu::short_convolution(pool_, shape, x, matrix(taps), tokens, history);
  }
  /// The delta rule: out [tokens, heads, dim]. q, k, z [tokens, heads, dim] and beta
  /// [tokens, heads] are overwritten.
  void kda(kda_shape const& shape,
           kda_values const& in,
           std::size_t tokens,
           std::span<std::byte* const> state,
           float* out) {
    rates_.assign(vector(in.rate), vector(in.rate) + shape.heads);
    for (float& one : rates_) { one = in.rate_is_logarithm ? std::exp(one) : -one; }
    cpu::kda(pool_,
             shape,
             {.q = in.q,
              .k = in.k,
              .v = in.v,
              .z = in.z,
              .beta = in.beta,
              .rate = rates_.data(),
              .dt_bias = vector(in.dt_bias)},
             tokens,
             values_of(shape, state),
             out);
  }
  /// y = weight * x / rms(x) * sigmoid(gate), `rows` rows of weight.cols values; y may be x.
  void gated_norm(float const* x,
                  matrix_view const& weight,
                  float const* gate,
                  float eps,
                  std::size_t rows,
                  float* y) {
    cpu::gated_norm(pool_, x, vector(weight), gate, eps, rows, weight.cols, y);
  }
  /// The mixture of a residual bank: y [tokens, cols] = sum of softmax(score) * candidate, each
  /// candidate [tokens, cols], and the softmax in shares [tokens, candidates]. y is no candidate.
  void mix_bank(std::span<float const* const> candidates,
                bank_score const& score,
                float eps,
                std::size_t tokens,
                float* shares,
                float* y) {
    std::size_t const cols = score.weight.cols;
    float const* const weight = vector(score.weight);
    score_.assign(weight, weight + cols);
    if (score.factor.data != nullptr) {
      float const* const factor = vector(score.factor);
      for (std::size_t i = 0; i < cols; ++i) { score_[i] *= factor[i]; }
    }
    cpu::mix_bank(pool_, candidates, score_.data(), eps, tokens, cols, shares, y);
  }

 private:
  /// The state of a layer of delta attention. Throws contract_error unless there is one page.
  [[nodiscard]] static float* values_of(kda_shape const& shape, std::span<std::byte* const> state) {
    if (state.size() != 1) {
      throw contract_error{"a layer of delta attention of " + std::to_string(shape.heads) +
                           " heads has " + std::to_string(state.size()) +
                           " pages of state; it takes one"};
    }
    return reinterpret_cast<float*>(state.front());
  }
  /// The values of a small matrix, as `vector`.
  [[nodiscard]] float const* matrix(matrix_view const& one) {
    bool const aligned = reinterpret_cast<std::uintptr_t>(one.data) % alignof(float) == 0;
    if (one.type == quant_type::f32 && aligned && one.multiplier == 1.0F) {
      return reinterpret_cast<float const*>(one.data);
    }
    decoded_.resize(one.rows * one.cols);
    quant::decode_rows(one, 0, one.rows, decoded_);
    return decoded_.data();
  }
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
  std::vector<float> decoded_, rates_, score_;
  std::size_t first_position_ = 0;   ///< of the step
  std::vector<std::uint32_t> rows_;  ///< ids of the step
  std::vector<head_task> heads_;
};

}  // namespace terrace::kernel::cpu
