// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/dense_ffn.hpp>
#include <terrace/model/mixture_ffn.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/rope_frequencies.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace terrace::model {

/// A decoder-only transformer: embedding, layers of attention and feed-forward on one residual
/// stream, which may have a bank of earlier sums, norm, head.
///
/// Everything it reads is a block of the catalog, leased step by step, so any amount of it may live
/// anywhere.
template <class Backend, class Attention>
class decoder {
 public:
  using attention_options = typename Attention::options;

  decoder(format::catalog const& catalog, decoder_config config, attention_options const& attention)
      : config_{std::move(config)},
        frequencies_{attention.frequencies},
        embedding_{catalog},
        head_{catalog},
        stream_{config_} {
    embed_ = embedding_.add("token_embd.weight", config_.vocab, config_.hidden);
    head_reader_ = stream_reader<Backend>::of_head(head_, config_);
    bool const tied = !head_.has("output.weight");
    output_ =
        head_.add(tied ? "token_embd.weight" : "output.weight", config_.vocab, config_.hidden);
    for (int layer = 0; layer < config_.layers; ++layer) {
      attention_.push_back(std::make_unique<Attention>(catalog, config_, layer, attention));
      if (config_.is_mixture(layer)) {
        ffn_.push_back(std::make_unique<feed_forward>(
            std::in_place_type<mixture_ffn<Backend>>, catalog, config_, layer));
      } else {
        ffn_.push_back(std::make_unique<feed_forward>(
            std::in_place_type<dense_ffn<Backend>>, catalog, config_, layer));
      }
    }
  }

  [[nodiscard]] decoder_config const& config() const noexcept { return config_; }

  [[nodiscard]] rope_frequencies const& frequencies() const noexcept { return frequencies_; }

  /// The dense blocks of one step of a pass, and the mixture layer whose experts are leased beside
  /// them.
  struct step {
    weight_group* weights;
    int mixture_layer = -1;
  };
  /// Steps in the order of a pass.
  [[nodiscard]] std::vector<step> steps() {
    std::vector<step> all{{&embedding_}};
    for (int layer = 0; layer < config_.layers; ++layer) {
      all.push_back({&attention_[layer]->weights()});
      all.push_back({&ffn_weights(layer), config_.is_mixture(layer) ? layer : -1});
    }
    all.push_back({&head_});
    return all;
  }

  /// Runs the tokens of the backend's step through all layers; the residual stream stays in the
  /// decoder.
  void run(pass<Backend>& run) {
    embed(run);
    read_ahead(run, attention_[0]->weights());
    for (int layer = 0; layer < config_.layers; ++layer) {
      read_ahead(run, ffn_weights(layer));
      attention_[layer]->add_to(run, attention_work_, stream_);
      read_ahead(run, layer + 1 < config_.layers ? attention_[layer + 1]->weights() : head_);
      std::visit(
          [&](auto& ffn) {
            if constexpr (std::is_same_v<std::decay_t<decltype(ffn)>, mixture_ffn<Backend>>) {
              ffn.add_to(run, mixture_work_, stream_, mixture_at(layer + 1));
            } else {
              ffn.add_to(run, dense_work_, stream_);
            }
          },
          *ffn_[layer]);
      show_stream(run);
    }
  }

  /// Logits [count, vocab] of tokens [first, first + count) of the last batch, in backend memory.
  void logits(pass<Backend>& run, std::size_t first, std::size_t count, float* out) {
    auto const scope = head_.enter(run.store, run.backend.stream());
    run.backend.resize(normed_, count * static_cast<std::size_t>(config_.hidden));
    head_reader_.read(run, reader_work_, scope, stream_, first, count, normed_.data());
    run.backend.prepare(input_, normed_.data(), count, config_.hidden);
    run.backend.matmul(scope[output_], input_, out);
  }

 private:
  using feed_forward = std::variant<dense_ffn<Backend>, mixture_ffn<Backend>>;

  void embed(pass<Backend>& run) {
    auto const scope = embedding_.enter(run.store, run.backend.stream());
    stream_.begin(run.backend, run.tokens);
    run.backend.embed(scope[embed_], stream_.sum());
    show_stream(run);
  }
  void show_stream(pass<Backend> const& run) {
    run.show("stream", stream_.sum(), run.tokens, static_cast<std::size_t>(config_.hidden));
  }
  void read_ahead(pass<Backend>& run, weight_group const& group) const {
    if (run.read_ahead && !group.held()) { run.store.prefetch(group.ids()); }
  }
  [[nodiscard]] weight_group& ffn_weights(int layer) {
    return std::visit([](auto& ffn) -> weight_group& { return ffn.weights(); }, *ffn_[layer]);
  }
  [[nodiscard]] mixture_ffn<Backend>* mixture_at(int layer) {
    return layer < config_.layers ? std::get_if<mixture_ffn<Backend>>(ffn_[layer].get()) : nullptr;
  }

  decoder_config config_;
  rope_frequencies frequencies_;
  weight_group embedding_, head_;
  stream_reader<Backend> head_reader_;
  std::size_t embed_ = 0, output_ = 0;
  std::vector<std::unique_ptr<Attention>> attention_;
  std::vector<std::unique_ptr<feed_forward>> ffn_;
  // One workspace a kind of layer: layers run in turn.
  typename Attention::workspace attention_work_;
  typename dense_ffn<Backend>::workspace dense_work_;
  typename mixture_ffn<Backend>::workspace mixture_work_;
  typename stream_reader<Backend>::workspace reader_work_;
  residual_stream<Backend> stream_;
  typename Backend::activations input_;
  typename Backend::template buffer<float> normed_;
};

}  // namespace terrace::model
