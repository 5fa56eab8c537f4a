// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/attention_shape.hpp>
#include <terrace/core/bank_score.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/gated_activation.hpp>
#include <terrace/core/head_product.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/kda_values.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/core/rope_shape.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cpu/backend.hpp>
#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/attention.hpp>
#include <terrace/kernel/cuda/buffer.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>
#include <terrace/kernel/cuda/dequantise.hpp>
#include <terrace/kernel/cuda/elementwise.hpp>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/kernel/cuda/expert_table.hpp>
#include <terrace/kernel/cuda/head_products.hpp>
#include <terrace/kernel/cuda/kda.hpp>
#include <terrace/kernel/cuda/kv_cache.hpp>
#include <terrace/kernel/cuda/matmul.hpp>
#include <terrace/kernel/cuda/norm.hpp>
#include <terrace/kernel/cuda/page_lists.hpp>
#include <terrace/kernel/cuda/residual_bank.hpp>
#include <terrace/kernel/cuda/rope.hpp>
#include <terrace/kernel/cuda/route.hpp>
#include <terrace/kernel/cuda/upload_ring.hpp>
#include <terrace/shim/cuda.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::kernel::cuda {

/// The kernels of this folder bound to one device, one stream and one numerics: what a model
/// computes with. Calls queue work and return; `read` and `drain` wait for it.
///
/// A backend made by `measuring` computes nothing and allocates nothing: a pass over a model tells
/// by `working_bytes` what the real one will need.
class backend {
 public:
  template <class T>
  using buffer = cuda::buffer<T>;
  using host_backend = cpu::backend;
  using expert_shape = cuda::expert_shape;
  using expert_table = cuda::expert_table;
  using page_lists = cuda::page_lists;
  static constexpr char const* name = "cuda";
  static constexpr bool on_device = true;

  /// Activations and the memory they are rounded into.
  struct activations {
    cuda::activations view;
    buffer<std::byte> prepared;
  };
  /// Angles of a step and the memory they lie in.
  struct rope_table {
    rope_angles angles;
    std::vector<float> frequencies_here;
    buffer<float> frequencies, cosine, sine;
  };

  /// Errors: cuda_error for a device that does not exist or has no memory left.
  backend(int device, numerics mode) : backend{device, mode, false} {
    shim::device_scope const here{device};
    stream_ = shim::make_stream(device);
    ring_.emplace(device, stream());
    state_.reserve(account_, 1);
    fault_.reserve(account_, 1);
    shim::fill(stream(), fault_.data(), 0, sizeof(device_fault));
  }
  [[nodiscard]] static backend measuring(numerics mode) { return backend{0, mode, true}; }
  backend(backend&&) = delete;  // buffers borrow the account
  ~backend() { drain(); }

  [[nodiscard]] numerics mode() const noexcept { return mode_; }
  [[nodiscard]] stream_ref stream() const noexcept { return stream_ref{stream_.get()}; }
  /// Most bytes of device memory that buffers have taken, as the driver rounds them.
  [[nodiscard]] std::uint64_t working_bytes() const noexcept { return account_.peak; }

  using scope = std::optional<shim::device_scope>;
  /// The device is the calling thread's while the scope lives; callers hold one around all else.
  [[nodiscard]] scope enter() const {
    return account_.measuring ? scope{} : scope{std::in_place, device_};
  }
  /// Work that was recorded once; valid while `memory_moves` stays what it was.
  using recording = shim::unique_graph_exec;
  /// What `work()` queues on the stream, as one graph; nothing of it runs yet. `work` may not need
  /// other memory than an earlier call of it, nor send or read.
  /// Errors: cuda_error; what work throws.
  template <class Work>
  [[nodiscard]] recording record(Work&& work) {
    shim::check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
                "beginning to record a graph");
    cudaGraph_t made = nullptr;
    try {
      work();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_.get(), &made));
      shim::unique_graph const dropped{made};
      throw;
    }
    shim::check(cudaStreamEndCapture(stream_.get(), &made), "recording a graph");
    shim::unique_graph const graph{made};
    cudaGraphExec_t runnable = nullptr;
    shim::check(cudaGraphInstantiate(&runnable, graph.get(), 0), "instantiating a graph");
    return recording{runnable};
  }
  void replay(recording const& one) {
    shim::check(cudaGraphLaunch(one.get(), stream_.get()), "launching a graph");
  }
  /// Grows whenever a buffer of this backend gets other memory.
  [[nodiscard]] std::uint64_t memory_moves() const noexcept { return account_.moves; }

  /// Returns once all work is done; what failed is reported by the next `read`.
  void drain() noexcept {
    if (!account_.measuring) { static_cast<void>(cudaStreamSynchronize(stream_.get())); }
  }

  /// What follows, until the next call, computes `ids`, the first of them at `first_position`.
  void begin_step(std::size_t first_position, std::span<std::int32_t const> ids) {
    tokens_ = ids.size();
    ids_.reserve(account_, ids.size());
    if (account_.measuring) { return; }
    decode_state const now{.position = static_cast<std::uint32_t>(first_position)};
    ring_->send(&now, sizeof now, state_.data());
    ring_->send(ids.data(), ids.size_bytes(), ids_.data());
  }

  /// Room for `count` values; what is kept of the old ones is not said.
  template <class T>
  void resize(buffer<T>& one, std::size_t count) {
    one.reserve(account_, count);
  }
  /// Makes x [tokens, cols] ready for products; x must stay unchanged while they read it.
  void prepare(activations& into, float const* x, std::size_t tokens, std::size_t cols) {
    into.prepared.reserve(account_, prepared_bytes(mode_, tokens, cols));
    if (account_.measuring) {
      into.view.tokens = tokens;
      return;
    }
    into.view = cuda::prepare(stream(), mode_, x, tokens, cols, into.prepared.data());
  }
  /// y [tokens, w.rows] = w x
  void matmul(matrix_view const& w, activations const& x, float* y) {
    if (!account_.measuring) { cuda::matmul(stream(), w, x.view, y); }
  }
  /// The same with float32 activations whatever the numerics.
  void matmul_exact(matrix_view const& w, float const* x, std::size_t tokens, float* y) {
    if (account_.measuring) { return; }
    auto const exact = cuda::prepare(stream(), numerics::exact, x, tokens, w.cols, nullptr);
    cuda::matmul(stream(), w, exact, y);
  }
  void head_products(head_product const& all, std::size_t tokens) {
    if (!account_.measuring) { cuda::head_products(stream(), all, tokens); }
  }
  /// out [tokens, w.cols]: the rows of `w` numbered by the ids of this step, as float32.
  void embed(matrix_view const& w, float* out) {
    if (!account_.measuring) { cuda::embed(stream(), w, ids_.data(), tokens_, out); }
  }
  /// y = weight * x / rms(x), rows of weight.cols values; y may be x.
  void rms_norm(
      float const* x, matrix_view const& weight, float eps, std::size_t tokens, float* y) {
    float const* const factors = vector(weight);
    if (!account_.measuring) { cuda::rms_norm(stream(), x, factors, eps, tokens, weight.cols, y); }
  }
  /// The first weight.cols values of each of `rows` rows that lie `stride` floats apart, in place.
  void rms_norm_part(
      float* x, std::size_t stride, matrix_view const& weight, float eps, std::size_t rows) {
    float const* const factors = vector(weight);
    if (!account_.measuring) {
      cuda::rms_norm_part(stream(), x, stride, factors, eps, rows, weight.cols);
    }
  }
  void rope(float* x, rope_shape const& shape, rope_table const& angles) {
    if (!account_.measuring) { cuda::rope(stream(), x, shape, angles.angles); }
  }
  /// Angles for the positions of this step.
  void make_angles(rope_table& into, std::span<float const> frequencies, float magnitude) {
    std::size_t const pairs = frequencies.size();
    into.frequencies.reserve(account_, pairs);
    into.cosine.reserve(account_, tokens_ * pairs);
    into.sine.reserve(account_, tokens_ * pairs);
    if (account_.measuring || pairs == 0) { return; }
    into.angles = {
        .tokens = tokens_, .pairs = pairs, .cosine = into.cosine.data(), .sine = into.sine.data()};
    if (!std::equal(frequencies.begin(),
                    frequencies.end(),
                    into.frequencies_here.begin(),
                    into.frequencies_here.end())) {
      into.frequencies_here.assign(frequencies.begin(), frequencies.end());
      ring_->send(frequencies.data(), frequencies.size_bytes(), into.frequencies.data());
    }
    cuda::make_angles(stream(), state_.data(), into.frequencies.data(), magnitude, into.angles);
  }
  void store_kv(attention_shape const& shape,
                float const* k,
                float const* v,
                kv_pages const& cache) {
    if (!account_.measuring) { cuda::store_kv(stream(), shape, state_.data(), k, v, cache); }
  }
  void attention(attention_shape const& shape, float const* q, kv_pages const& cache, float* out) {
    std::size_t const positions = cache.pages.size() * cache.layout.page_tokens;
    scratch_.reserve(account_, attention_scratch_bytes(shape, positions));
    if (account_.measuring) { return; }
    cuda::attention(stream(),
                    mode_,
                    {.shape = shape,
                     .state = state_.data(),
                     .q = q,
                     .cache = cache,
                     .out = out,
                     .scratch = scratch_.data()});
  }
  void swiglu(float const* gate, float const* up, std::size_t count, float* y) {
    if (!account_.measuring) { cuda::swiglu(stream(), gate, up, count, y); }
  }
  /// y[i] = the activation of gate[i] and up[i]; y may be either.
  void activate(gated_activation const& how,
                float const* gate,
                float const* up,
                std::size_t count,
                float* y) {
    if (!account_.measuring) { cuda::activate(stream(), how, gate, up, count, y); }
  }
  /// y[i] *= sigmoid(gate[i])
  void multiply_sigmoid(float const* gate, std::size_t count, float* y) {
    if (!account_.measuring) { cuda::multiply_sigmoid(stream(), gate, count, y); }
  }
  void add(float const* x, std::size_t count, float* y) {
    if (!account_.measuring) { cuda::add(stream(), x, count, y); }
  }
  void zero(float* x, std::size_t count) {
    if (!account_.measuring) { cuda::zero(stream(), x, count); }
  }
  /// Copies `count` values of each of `rows` rows; strides in floats.
  void copy_columns(float const* from,
                    std::size_t from_stride,
                    float* to,
                    std::size_t to_stride,
                    std::size_t count,
                    std::size_t rows) {
    if (!account_.measuring) {
      cuda::copy_columns(stream(), from, from_stride, to, to_stride, count, rows);
    }
  }

  /// The values of device memory, on the host once everything queued before is done. Valid until
  /// `into` changes.
  /// Errors: error naming layer and expert when a kernel met a bad expert id or an output that is
  ///         not finite; cuda_error, device_lost for what failed on the device.
  template <class T>
  [[nodiscard]] std::span<T const> read(T const* values, std::size_t count, std::vector<T>& into) {
    into.resize(count);
    if (account_.measuring) { return into; }
    device_fault fault;
    shim::copy(stream(), into.data(), values, count * sizeof(T));
    shim::copy(stream(), &fault, fault_.data(), sizeof fault);
    shim::synchronize(stream());
    if (fault.kind != 0) { report(fault); }
    return into;
  }
  /// Values of the host, to device memory in the order of the stream.
  void write(std::span<float const> values, float* to) {
    if (!account_.measuring) { ring_->send(values.data(), values.size_bytes(), to); }
  }

  /// Room for the lists of `layers` layers of at most `pages` pages.
  void reserve_pages(page_lists& all, std::size_t layers, std::size_t pages) {
    all.reserve(account_, layers, pages);
  }
  /// The pages of a layer have grown or were given back.
  void set_pages(page_lists& all, std::size_t layer, std::span<std::byte* const> pages) {
    if (!account_.measuring) { all.set(*ring_, layer, pages); }
  }

  /// silu of convolution `which` (0 q, 1 k, 2 v) in place: x [tokens, width], taps [width, taps].
  /// `state` lists the one page of the layer, laid out as kda_shape says; its history moves on.
  void short_convolution(kda_shape const& shape,
                         std::size_t which,
                         matrix_view const& taps,
                         std::size_t tokens,
                         std::span<std::byte* const> state,
                         float* x) {
    float const* const values = matrix(taps, decoded_);
    if (!account_.measuring) {
      cuda::short_convolution(stream(), shape, which, values, tokens, state.data(), x);
    }
  }
  /// The delta rule: out [tokens, heads, dim]. q, k, z [tokens, heads, dim] and beta
  /// [tokens, heads] are overwritten.
  void kda(kda_shape const& shape,
           kda_values const& in,
           std::size_t tokens,
           std::span<std::byte* const> state,
           float* out) {
    float const* const rate = vector(in.rate);
    float const* const dt_bias = matrix(in.dt_bias, decoded_too_);
    if (account_.measuring) { return; }
    cuda::kda(stream(),
              shape,
              {.q = in.q,
               .k = in.k,
               .v = in.v,
               .z = in.z,
               .beta = in.beta,
               .rate = rate,
               .dt_bias = dt_bias,
               .rate_is_logarithm = in.rate_is_logarithm},
              tokens,
              state.data(),
              out);
  }
  /// y = weight * x / rms(x) * sigmoid(gate), `rows` rows of weight.cols values; y may be x.
  void gated_norm(float const* x,
                  matrix_view const& weight,
                  float const* gate,
                  float eps,
                  std::size_t rows,
                  float* y) {
    float const* const factors = vector(weight);
    if (!account_.measuring) {
      cuda::gated_norm(stream(), x, factors, gate, eps, rows, weight.cols, y);
    }
  }
  /// The mixture of a residual bank: y [tokens, cols] = sum of softmax(score) * candidate, each
  /// candidate [tokens, cols], and the softmax in shares [tokens, candidates]. y is no candidate.
  void mix_bank(std::span<float const* const> candidates,
                bank_score const& score,
                float eps,
                std::size_t tokens,
                float* shares,
                float* y) {
    float const* const weight = vector(score.weight);
    float const* const factor =
        score.factor.data == nullptr ? nullptr : matrix(score.factor, decoded_too_);
    scores_.reserve(account_, candidates.size() * tokens);
    if (account_.measuring) { return; }
    cuda::mix_bank(stream(),
                   candidates,
                   weight,
                   factor,
                   eps,
                   tokens,
                   score.weight.cols,
                   scores_.data(),
                   shares,
                   y);
  }

  void route(sigmoid_router const& router,
             float const* logits,
             matrix_view const& bias,
             std::size_t tokens,
             expert_id* ids,
             float* weights) {
    float const* const offsets = vector(bias);
    if (!account_.measuring) {
      cuda::route(stream(), router, logits, offsets, tokens, ids, weights);
    }
  }
  /// What all experts of a layer share with `expert`.
  [[nodiscard]] static expert_shape shape_of(block_info const& expert,
                                             std::size_t experts,
                                             std::size_t top_k,
                                             gated_activation const& activation) noexcept {
    return {.experts = experts,
            .top_k = top_k,
            .gate = expert.matrices[0],
            .up = expert.matrices[1],
            .down = expert.matrices[2],
            .activation = activation,
            .layer = static_cast<std::uint32_t>(layer_of(expert.id))};
  }
  /// The table as it is now, for what is queued from now on.
  void send(expert_table& table) { table.send(account_, ring_ ? &*ring_ : nullptr); }
  /// rows [tokens * top_k, d_model]: the outputs of the experts that ids [tokens, top_k] name;
  /// rows of experts that are not in the table stay as they are.
  void expert_rows(expert_shape const& shape,
                   expert_table const& table,
                   activations const& x,
                   expert_id const* ids,
                   float* rows) {
    scratch_.reserve(account_, expert_scratch_bytes(mode_, shape, x.view.tokens));
    if (account_.measuring) { return; }
    cuda::expert_rows(
        stream(), shape, table.there(), x.view, ids, rows, scratch_.data(), fault_.data());
  }
  /// sum [tokens, d_model] += gates * rows, in ascending order of expert id.
  void combine(expert_shape const& shape,
               expert_id const* ids,
               float const* gates,
               float const* rows,
               std::size_t tokens,
               float* sum) {
    if (account_.measuring) { return; }
    cuda::combine(stream(), shape, ids, gates, rows, tokens, sum, fault_.data());
  }

 private:
  backend(int device, numerics mode, bool measuring) : device_{device}, mode_{mode} {
    account_.measuring = measuring;
  }

  /// The values of a vector, as `matrix`.
  [[nodiscard]] float const* vector(matrix_view const& one) { return matrix(one, decoded_); }
  /// The values of a small matrix: in place when they are float32 at an aligned address, else
  /// decoded into `room`, which must not be used again before a kernel that reads them is queued.
  [[nodiscard]] float const* matrix(matrix_view const& one, buffer<float>& room) {
    bool const aligned = reinterpret_cast<std::uintptr_t>(one.data) % alignof(float) == 0;
    if (one.type == quant_type::f32 && aligned && one.multiplier == 1.0F) {
      return reinterpret_cast<float const*>(one.data);
    }
    room.reserve(account_, one.rows * one.cols);
    if (!account_.measuring) { cuda::dequantise(stream(), one, 0, one.rows, room.data()); }
    return room.data();
  }

  [[noreturn]] void report(device_fault const& fault) {
    shim::fill(stream(), fault_.data(), 0, sizeof(device_fault));
    std::string const where = "layer " + std::to_string(fault.layer);
    if (fault.kind == 1) {
      throw error{"the router of " + where + " chose expert " + std::to_string(fault.expert) +
                  ", which does not exist; its weights or its input are damaged"};
    }
    throw error{"expert " + std::to_string(fault.expert) + " of " + where +
                " computed a value that is not finite; its weights are damaged or of another type "
                "than they say"};
  }

  int device_;
  numerics mode_;
  memory_account account_;
  shim::unique_stream stream_;
  std::optional<upload_ring> ring_;
  buffer<decode_state> state_;
  buffer<std::int32_t> ids_;  ///< of the step
  buffer<device_fault> fault_;
  buffer<std::byte> scratch_;
  buffer<float> decoded_, decoded_too_, scores_;
  std::size_t tokens_ = 0;  ///< of the step
};

}  // namespace terrace::kernel::cuda

#endif
