// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/lease.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/expert_batch.hpp>
#include <terrace/model/expert_sets.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace::model {

/// The routed experts of one layer on a backend whose memory the host reads: the CPU's, also where
/// it computes for a device.
///
/// Experts are leased in sets of ascending id. Each expert's outputs are kept until its turn and
/// added to a token in ascending order of expert id, so that the sum does not depend on which
/// expert arrived first, on how many could be leased at once, or on the batch.
template <class Backend>
class host_experts {
 public:
  /// What one computation needs beside weights; one serves all layers in turn.
  struct workspace {
    expert_batch batch;
    std::vector<expert_id> experts;
    std::vector<typename Backend::expert_task> tasks;
    typename Backend::template buffer<float> outputs;
  };

  host_experts(format::catalog const& /*catalog*/, decoder_config const& config, int layer)
      : config_{config}, layer_{static_cast<std::uint32_t>(layer)} {}

  /// sum [tokens, width] += the weighted outputs of the chosen experts, which read and write
  /// `width` values.
  ///
  /// Shapes: input [tokens, width]; chosen, gates [tokens, top_k].
  void add_to(Backend& backend,
              any_store& store,
              std::size_t tokens,
              workspace& work,
              typename Backend::activations const& input,
              expert_id const* chosen,
              float const* gates,
              float* sum) const {
    std::size_t const choices = tokens * static_cast<std::size_t>(config_.top_k);
    work.batch.assign(std::span{chosen, choices},
                      std::span{gates, choices},
                      static_cast<std::size_t>(config_.top_k),
                      static_cast<std::size_t>(config_.experts));
    auto const entries = work.batch.entries();
    work.experts.clear();
    for (auto const& one : entries) { work.experts.push_back(one.expert); }
    for_each_expert_set(store,
                        backend.stream(),
                        layer_id{layer_},
                        work.experts,
                        most_kept_outputs / tokens,
                        [&](std::size_t first, std::size_t count, lease const& leased) {
                          compute_set(
                              backend, work, entries.subspan(first, count), leased, input, sum);
                        });
  }

 private:
  /// Computes the experts that are here first and the others as they arrive, then adds all in
  /// ascending order.
  void compute_set(Backend& backend,
                   workspace& work,
                   std::span<expert_batch::entry const> set,
                   lease const& leased,
                   typename Backend::activations const& input,
                   float* sum) const {
    std::size_t const width = static_cast<std::size_t>(config_.expert_io());
    std::size_t rows = 0;
    for (auto const& one : set) { rows += one.count; }
    backend.resize(work.outputs, rows * width);
    std::vector<float*> out(set.size());
    float* at = work.outputs.data();
    for (std::size_t i = 0; i < set.size(); ++i) {
      out[i] = at;
      at += set[i].count * width;
    }
    compute_as_they_arrive(leased, set.size(), [&](std::span<std::size_t const> here) {
      work.tasks.clear();
      for (auto const i : here) {
        work.tasks.push_back({leased[i].matrix(0),
                              leased[i].matrix(1),
                              leased[i].matrix(2),
                              work.batch.tokens(set[i]),
                              out[i]});
      }
      backend.expert_ffn(input, work.tasks, config_.activation);
    });
    for (std::size_t i = 0; i < set.size(); ++i) {
      backend.add_weighted_rows(
          out[i], work.batch.tokens(set[i]), work.batch.weights(set[i]), width, sum);
    }
  }

  /// Outputs kept while the experts of a whole layer are computed together.
  static constexpr std::size_t most_kept_outputs = 1024;

  decoder_config config_;
  std::uint32_t layer_;
};

}  // namespace terrace::model
