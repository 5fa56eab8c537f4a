// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/backend.hpp>
#include <terrace/kernel/cuda/backend.hpp>
#include <terrace/model/decoder.hpp>
#include <terrace/model/kimi_k2.hpp>
#include <terrace/model/kimi_k3.hpp>
#include <terrace/model/kimi_linear.hpp>
#include <terrace/model/llama.hpp>
#include <terrace/model/minimax_m2.hpp>
#include <terrace/runtime/detail/paper_store.hpp>
#include <terrace/runtime/pipeline.hpp>
#include <terrace/sequence/page_layout.hpp>
#include <terrace/sequence/state_pages.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace terrace::runtime {

namespace detail {

[[nodiscard]] inline int planned_context(model::decoder_config const& config,
                                         pipeline_options const& options) {
  int const wanted =
      options.context_tokens > 0 ? options.context_tokens : std::min(config.context, 4096);
  if (wanted > config.context) {
    throw contract_error{"a context of " + std::to_string(wanted) +
                         " tokens was asked for, but the model was made for " +
                         std::to_string(config.context) + "; ask for at most that"};
  }
  return wanted;
}

/// -log softmax(logits)[target], summed in double.
[[nodiscard]] inline float negative_log_likelihood(std::span<float const> logits,
                                                   std::int32_t target,
                                                   int position) {
  float const largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float const one : logits) { sum += std::exp(static_cast<double>(one) - largest); }
  double const value = std::log(sum) + largest - logits[static_cast<std::size_t>(target)];
  if (!std::isfinite(value)) {
    throw error{"the logits at position " + std::to_string(position) +
                " hold a value that is not finite; the weights are damaged or of another type than "
                "they say"};
  }
  return static_cast<float>(value);
}

}  // namespace detail

/// A pipeline of one family on one backend.
template <class Family, class Backend>
class basic_pipeline final : public pipeline {
 public:
  using attention = typename Family::template attention<Backend>;
  using decoder = model::decoder<Backend, attention>;

  /// The family's decoder for a catalog, without any weight.
  [[nodiscard]] static decoder make_decoder(format::catalog const& catalog,
                                            pipeline_options const& options) {
    auto config = Family::read_config(catalog.meta());
    config.vocab = vocabulary_of(catalog);
    auto const how = Family::template attention_options<Backend>(catalog, config, options.half_kv);
    return decoder{catalog, std::move(config), how};
  }

  basic_pipeline(format::catalog const& catalog,
                 any_store& store,
                 std::unique_ptr<Backend> backend,
                 pipeline_options options,
                 plan const& how)
      : options_{std::move(options)},
        store_{store},
        backend_{std::move(backend)},
        decoder_{make_decoder(catalog, options_)},
        state_{store, state_layouts(decoder_.config(), options_.half_kv)},
        frequencies_{decoder_.frequencies()},
        context_tokens_{detail::planned_context(decoder_.config(), options_)} {
    [[maybe_unused]] auto const scope = backend_->enter();
    backend_->reserve_pages(pages_,
                            static_cast<std::size_t>(decoder_.config().layers),
                            state_.pages_for(static_cast<std::size_t>(context_tokens_)));
    if constexpr (Backend::on_device) {
      device_.directory.emplace(*backend_, decoder_.config().layers, decoder_.config().experts);
      if (options_.dispatch != "device") {
        device_.host.emplace(options_.dispatch, options_.threads, options_.mode);
      }
      store_.watch(&*device_.directory);
    }
    load_pinned(catalog, how);
  }
  basic_pipeline(basic_pipeline const&) = delete;
  basic_pipeline& operator=(basic_pipeline const&) = delete;
  ~basic_pipeline() override {
    backend_->drain();  // leases and state may go once nothing reads them
    if constexpr (Backend::on_device) { store_.watch(nullptr); }
  }

  /// Memory of its own, beside the store's, that a pipeline on a device takes: the same passes run
  /// without weights, kernels or device.
  [[nodiscard]] static std::uint64_t compute_bytes(format::catalog const& catalog,
                                                   pipeline_options options)
    requires(Backend::on_device)
  {
    options.on_load = {};
    detail::paper_store store{catalog};
    basic_pipeline dry{catalog,
                       store,
                       std::unique_ptr<Backend>{new Backend{Backend::measuring(options.mode)}},
                       options,
                       plan{}};
    std::size_t const most = std::min(dry.chunk(), static_cast<std::size_t>(dry.context_tokens()));
    // Few tokens take other paths than many.
    for (std::size_t const tokens : {most, std::min<std::size_t>(most, 8), std::size_t{1}}) {
      std::vector<std::int32_t> const ids(tokens);
      dry.run(ids);
      auto pass = dry.make_pass(tokens);
      static_cast<void>(dry.logits(pass, 0, std::min(tokens, logit_rows)));
      dry.reset();
    }
    return dry.backend_->working_bytes();
  }

  std::span<float const> decode(std::span<std::int32_t const> ids) override {
    check(ids);
    [[maybe_unused]] auto const scope = backend_->enter();
    std::span<float const> last;
    std::size_t done = 0;
    while (done < ids.size()) {
      std::size_t const count = std::min<std::size_t>(chunk(), ids.size() - done);
      auto const part = ids.subspan(done, count);
      done += count;
      if (ids.size() == 1) {
        last = run_one(part);
      } else {
        run(part);
        if (done == ids.size()) {
          auto pass = make_pass(count);
          last = logits(pass, count - 1, 1);
        }
      }
      finish(count);
    }
    return last;
  }

  std::vector<float> nll(std::span<std::int32_t const> ids) override {
    reset();
    check(ids);
    [[maybe_unused]] auto const scope = backend_->enter();
    std::vector<float> result;
    std::size_t const vocab = static_cast<std::size_t>(vocab_size());
    for (std::size_t done = 0; done < ids.size();) {
      std::size_t const count = std::min<std::size_t>(chunk(), ids.size() - done);
      run(ids.subspan(done, count));
      auto pass = make_pass(count);
      for (std::size_t first = 0; first < count; first += logit_rows) {
        std::size_t const rows = std::min(logit_rows, count - first);
        auto const values = logits(pass, first, rows);
        for (std::size_t row = 0; row < rows && done + first + row + 1 < ids.size(); ++row) {
          std::size_t const at = done + first + row;
          result.push_back(detail::negative_log_likelihood(
              values.subspan(row * vocab, vocab), ids[at + 1], static_cast<int>(at)));
        }
      }
      finish(count);
      done += count;
    }
    return result;
  }

  void reset() noexcept override {
    backend_->drain();
    state_.clear();
    position_ = 0;
  }
  sequence::snapshot snapshot() override {
    [[maybe_unused]] auto const scope = backend_->enter();
    auto kept = state_.save(static_cast<std::size_t>(position_), page_copier());
    backend_->drain();  // the sequence may go on at once
    return kept;
  }
  void restore(sequence::snapshot const& kept) override {
    [[maybe_unused]] auto const scope = backend_->enter();
    reset();
    state_.restore(kept, page_copier());
    backend_->drain();
    position_ = static_cast<int>(kept.tokens());
  }
  std::vector<std::byte> state(int layer) override {
    [[maybe_unused]] auto const scope = backend_->enter();
    auto const index = static_cast<std::size_t>(layer);
    std::size_t const bytes = state_.layout(index).bytes;
    std::vector<std::byte> all, page;
    for (auto const* const address : state_.layer(index)) {
      auto const here = backend_->read(address, bytes, page);
      all.insert(all.end(), here.begin(), here.end());
    }
    return all;
  }
  int position() const noexcept override { return position_; }
  int context_tokens() const noexcept override { return context_tokens_; }
  int vocab_size() const noexcept override { return decoder_.config().vocab; }
  void record_routing(std::vector<std::uint16_t>* experts) noexcept override { routing_ = experts; }
  void watch(model::inner_watcher watcher) noexcept override { watcher_ = std::move(watcher); }

  /// How each layer keeps its part of a sequence.
  [[nodiscard]] static std::vector<sequence::page_layout> state_layouts(
      model::decoder_config const& config, bool half_kv) {
    std::vector<sequence::page_layout> layouts;
    for (int layer = 0; layer < config.layers; ++layer) {
      layouts.push_back(attention::state_page(config, layer, half_kv));
    }
    return layouts;
  }

 private:
  /// Rows of logits computed at once for likelihoods; a whole chunk of a large vocabulary would
  /// dwarf the model.
  static constexpr std::size_t logit_rows = 16;

  [[nodiscard]] static int vocabulary_of(format::catalog const& catalog) {
    return static_cast<int>(catalog.get("token_embd.weight").layout.rows);
  }
  [[nodiscard]] std::size_t chunk() const noexcept {
    return static_cast<std::size_t>(std::max(options_.prefill_chunk, 1));
  }

  void check(std::span<std::int32_t const> ids) const {
    if (ids.empty()) { throw contract_error{"there are no tokens to run; give a prompt"}; }
    for (auto const id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw contract_error{"token id " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(vocab_size()) + " ids"};
      }
    }
    if (ids.size() > static_cast<std::size_t>(context_tokens_ - position_)) {
      throw contract_error{std::to_string(ids.size()) + " tokens after " +
                           std::to_string(position_) + " do not fit a context of " +
                           std::to_string(context_tokens_) +
                           "; ask for a longer context (--ctx) or give fewer"};
    }
  }

  [[nodiscard]] model::pass<Backend> make_pass(std::size_t tokens) {
    model::pass<Backend> pass{.backend = *backend_,
                              .store = store_,
                              .pages = pages_,
                              .angles = angles_,
                              .first_position = static_cast<std::size_t>(position_),
                              .tokens = tokens,
                              .read_ahead = options_.read_ahead,
                              .look_ahead = options_.look_ahead,
                              .routing = routing_ == nullptr ? nullptr : &layer_major_,
                              .watcher = watcher_ ? &watcher_ : nullptr};
    if constexpr (Backend::on_device) {
      pass.device = {.directory = &*device_.directory,
                     .host = device_.host ? &*device_.host : nullptr};
    }
    return pass;
  }

  /// Logits [rows, vocab] of tokens [first, first + rows) of the last batch, for the host.
  [[nodiscard]] std::span<float const> logits(model::pass<Backend>& pass,
                                              std::size_t first,
                                              std::size_t rows) {
    queue_logits(pass, first, rows);
    return read_logits(rows);
  }
  void queue_logits(model::pass<Backend>& pass, std::size_t first, std::size_t rows) {
    backend_->resize(logits_, rows * static_cast<std::size_t>(vocab_size()));
    decoder_.logits(pass, first, rows, logits_.data());
  }
  [[nodiscard]] std::span<float const> read_logits(std::size_t rows) {
    return backend_->read(
        logits_.data(), rows * static_cast<std::size_t>(vocab_size()), logits_here_);
  }

  void run(std::span<std::int32_t const> ids) {
    begin(ids);
    compute(ids.size());
    keep_routing(ids.size());
  }
  /// What a step needs of the host before anything is computed.
  void begin(std::span<std::int32_t const> ids) {
    state_.grow(static_cast<std::size_t>(position_) + ids.size());
    list_pages();
    layer_major_.clear();
    backend_->begin_step(static_cast<std::size_t>(position_), ids);
  }
  void compute(std::size_t tokens) {
    if (!frequencies_.per_pair.empty()) {
      backend_->make_angles(angles_, frequencies_.per_pair, frequencies_.magnitude);
    }
    auto pass = make_pass(tokens);
    decoder_.run(pass);
  }

  /// One token and its logits. On a device with all weights at hand its work is recorded once and
  /// replayed for every token: a single launch.
  [[nodiscard]] std::span<float const> run_one(std::span<std::int32_t const> ids) {
    begin(ids);
    auto const whole_step = [&] {
      compute(1);
      auto pass = make_pass(1);
      return queue_logits(pass, 0, 1);
    };
    if constexpr (Backend::on_device) {
      auto& step = device_.step;
      auto const moves = backend_->memory_moves();
      if (everything_here()) {
        if (!step.work && step.moves == moves) { step.work = backend_->record(whole_step); }
        if (step.work && step.moves == moves) {
          backend_->replay(step.work);
          return read_logits(1);
        }
      }
      whole_step();
      step.work.reset();
      step.moves = backend_->memory_moves();
    } else {
      whole_step();
    }
    keep_routing(1);
    return read_logits(1);
  }
  /// Whether a step needs neither the store nor the host.
  [[nodiscard]] bool everything_here()
    requires(Backend::on_device)
  {
    if (routing_ != nullptr || watcher_ || options_.look_ahead || device_.host) { return false; }
    bool all = true;
    for (auto const& step : decoder_.steps()) {
      all = all && step.weights->held() &&
            (step.mixture_layer < 0 ||
             device_.directory->whole(layer_id{static_cast<std::uint32_t>(step.mixture_layer)}) !=
                 nullptr);
    }
    return all;
  }
  void list_pages() {
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(decoder_.config().layers);
         ++layer) {
      backend_->set_pages(pages_, layer, state_.layer(layer));
    }
  }
  /// Copies pages in the order of the backend's queue.
  [[nodiscard]] auto page_copier() {
    return [this](std::byte const* from, std::byte* to, std::size_t bytes) {
      std::size_t const values = bytes / sizeof(float);
      backend_->copy_columns(reinterpret_cast<float const*>(from),
                             values,
                             reinterpret_cast<float*>(to),
                             values,
                             values,
                             1);
    };
  }
  void finish(std::size_t tokens) noexcept {
    position_ += static_cast<int>(tokens);
    store_.tick();
  }

  /// Layers record [layer][token][top_k]; callers want [token][layer][top_k].
  void keep_routing(std::size_t tokens) {
    if (routing_ == nullptr) { return; }
    std::size_t const k = static_cast<std::size_t>(decoder_.config().top_k);
    std::size_t const layers = static_cast<std::size_t>(decoder_.config().mixture_layers());
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        auto const from =
            layer_major_.begin() + static_cast<std::ptrdiff_t>((layer * tokens + token) * k);
        routing_->insert(routing_->end(), from, from + static_cast<std::ptrdiff_t>(k));
      }
    }
  }

  /// Reads pinned blocks in sets, so that a drive sees a deep queue, and lets groups that are
  /// wholly pinned keep them.
  void load_pinned(format::catalog const& catalog, plan const& how) {
    static constexpr std::size_t set_size = 16;
    std::uint64_t total = 0, done = 0;
    for (auto const id : how.pinned) { total += catalog.find_block(id)->bytes; }
    for (std::size_t first = 0; first < how.pinned.size(); first += set_size) {
      auto const ids =
          std::span{how.pinned}.subspan(first, std::min(set_size, how.pinned.size() - first));
      pinned_.push_back(store_.acquire(backend_->stream(), ids));
      pinned_.back().wait_all();
      for (auto const id : ids) { done += catalog.find_block(id)->bytes; }
      if (options_.on_load) { options_.on_load(done, total); }
    }
    std::unordered_set<std::uint64_t> kept;
    for (auto const id : how.pinned) { kept.insert(static_cast<std::uint64_t>(id)); }
    for (auto const& step : decoder_.steps()) {
      auto const ids = step.weights->ids();
      bool const whole = std::all_of(ids.begin(), ids.end(), [&](block_id id) {
        return kept.contains(static_cast<std::uint64_t>(id));
      });
      if (whole) { step.weights->hold(store_, backend_->stream()); }
    }
  }

  template <bool OnDevice, class B>
  struct device_parts {};
  template <class B>
  struct device_parts<true, B> {
    std::optional<model::expert_directory<B>> directory;
    std::optional<model::host_side<typename B::host_backend>> host;
    /// The work of one token, and the state of the backend's memory after it last ran unrecorded.
    struct {
      typename B::recording work;
      std::uint64_t moves = 0;
    } step;
  };

  pipeline_options options_;
  any_store& store_;
  std::unique_ptr<Backend> backend_;
  [[no_unique_address]] device_parts<Backend::on_device, Backend> device_;
  std::vector<lease> pinned_;
  decoder decoder_;
  sequence::state_pages state_;
  typename Backend::rope_table angles_;
  model::rope_frequencies frequencies_;
  int context_tokens_;
  int position_ = 0;
  typename Backend::page_lists pages_;
  typename Backend::template buffer<float> logits_;
  std::vector<float> logits_here_;
  std::vector<std::uint16_t> layer_major_;
  std::vector<std::uint16_t>* routing_ = nullptr;
  model::inner_watcher watcher_;
};

namespace detail {

/// Calls f<Family>() for the family of the catalog's architecture.
template <class F>
auto with_family(format::catalog const& catalog, F&& f) {
  auto const architecture = catalog.architecture();
  if (architecture == model::llama::architecture) { return f.template operator()<model::llama>(); }
  if (architecture == model::minimax_m2::architecture) {
    return f.template operator()<model::minimax_m2>();
  }
  if (architecture == model::kimi_k2::architecture) {
    return f.template operator()<model::kimi_k2>();
  }
  if (architecture == model::kimi_k3::architecture) {
    return f.template operator()<model::kimi_k3>();
  }
  if (architecture == model::kimi_linear::architecture) {
    return f.template operator()<model::kimi_linear>();
  }
  throw not_supported{
      catalog.files().front().string() + ": the architecture `" + architecture +
      "` is not one terrace runs; llama, minimax-m2, deepseek2 (Kimi K2), kimi-k3 and "
      "kimi-linear are"};
}

[[noreturn]] inline void refuse_cuda() {
  throw not_supported{
      "the cuda backend is not in this build; build with the CUDA toolkit, or compute with cpu"};
}

}  // namespace detail

inline requirements inspect(format::catalog const& catalog,
                            pipeline_options const& options,
                            std::function<std::uint64_t(std::uint64_t)> const& counted) {
  return detail::with_family(catalog, [&]<class Family>() {
    using concrete = basic_pipeline<Family, kernel::cpu::backend>;
    std::uint64_t compute_bytes = 0;
    if (options.backend == compute_backend::cuda) {
#if defined(TERRACE_HAS_CUDA)
      compute_bytes =
          basic_pipeline<Family, kernel::cuda::backend>::compute_bytes(catalog, options);
#else
      detail::refuse_cuda();
#endif
    }
    auto decoder = concrete::make_decoder(catalog, options);
    auto const& config = decoder.config();
    requirements needs;
    needs.compute_bytes = compute_bytes;
    needs.architecture = config.architecture;
    needs.vocab = config.vocab;
    needs.context_limit = config.context;
    needs.context_tokens = detail::planned_context(config, options);
    needs.layers = config.layers;
    needs.mixture_layers = config.mixture_layers();
    needs.first_mixture_layer = config.leading_dense;
    needs.experts = config.experts;
    needs.top_k = config.top_k;
    auto const state = sequence::size_state(concrete::state_layouts(config, options.half_kv),
                                            static_cast<std::size_t>(needs.context_tokens),
                                            static_cast<std::size_t>(options.snapshots),
                                            counted);
    needs.state_bytes = state.bytes;
    needs.recurrent_bytes = state.recurrent_bytes;
    for (auto const& one : decoder.steps()) {
      requirements::step step;
      for (auto const id : one.weights->ids()) {
        step.dense.push_back({id, counted(catalog.find_block(id)->bytes)});
      }
      if (one.mixture_layer >= 0) {
        auto const first =
            expert_block(layer_id{static_cast<std::uint32_t>(one.mixture_layer)}, expert_id{0});
        step.layer = layer_of(first);
        step.expert_bytes = counted(catalog.find_block(first)->bytes);
      }
      needs.steps.push_back(std::move(step));
    }
    return needs;
  });
}

inline std::unique_ptr<pipeline> make_pipeline(format::catalog const& catalog,
                                               any_store& store,
                                               pipeline_options const& options,
                                               plan const& how) {
  return detail::with_family(catalog, [&]<class Family>() -> std::unique_ptr<pipeline> {
    if (options.backend == compute_backend::cuda) {
#if defined(TERRACE_HAS_CUDA)
      return std::make_unique<basic_pipeline<Family, kernel::cuda::backend>>(
          catalog,
          store,
          std::make_unique<kernel::cuda::backend>(options.device, options.mode),
          options,
          how);
#else
      detail::refuse_cuda();
#endif
    }
    return std::make_unique<basic_pipeline<Family, kernel::cpu::backend>>(
        catalog,
        store,
        std::make_unique<kernel::cpu::backend>(options.threads, options.mode),
        options,
        how);
  });
}

}  // namespace terrace::runtime
