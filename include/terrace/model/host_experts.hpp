// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/lease.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/expert_batch.hpp>
#include <terrace/model/pass.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace::model {

/// The routed experts of one layer on a backend whose router ids the host reads anyway.
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
    std::vector<typename Backend::expert_task> tasks;
    typename Backend::template buffer<float> outputs;
  };

  host_experts(format::catalog const& /*catalog*/, decoder_config const& config, int layer)
      : config_{config}, layer_{static_cast<std::uint32_t>(layer)} {}

  /// sum [tokens, hidden] += the weighted outputs of the chosen experts.
  ///
  /// Shapes: input [tokens, hidden]; chosen, gates [tokens, top_k].
  void add_to(pass<Backend>& run,
              workspace& work,
              typename Backend::activations const& input,
              expert_id const* chosen,
              float const* gates,
              float* sum) const {
    std::size_t const choices = run.tokens * static_cast<std::size_t>(config_.top_k);
    work.batch.assign(std::span{chosen, choices},
                      std::span{gates, choices},
                      static_cast<std::size_t>(config_.top_k),
                      static_cast<std::size_t>(config_.experts));
    run_experts(run, work, input, sum);
  }

 private:
  [[nodiscard]] block_id id_of(expert_batch::entry const& one) const noexcept {
    return expert_block(layer_id{layer_}, one.expert);
  }

  /// Runs all experts of the batch in sets that fit, the next set being read while one computes.
  void run_experts(pass<Backend>& run,
                   workspace& work,
                   typename Backend::activations const& input,
                   float* sum) const {
    auto const entries = work.batch.entries();
    std::size_t const room = std::max<std::size_t>(run.store.room_for(id_of(entries.front())), 1);
    bool const all_fit = entries.size() <= room && run.tokens * entries.size() <= most_kept_outputs;
    std::size_t const set_size =
        all_fit ? entries.size() : std::clamp<std::size_t>(room / 2, 1, most_experts_a_set);
    bool const overlap = room >= 2 * set_size;
    lease current = lease_set(run, entries.first(std::min(set_size, entries.size())));
    for (std::size_t first = 0; first < entries.size(); first += set_size) {
      auto const set = entries.subspan(first, std::min(set_size, entries.size() - first));
      std::size_t const after = first + set.size();
      auto const following = entries.subspan(after, std::min(set_size, entries.size() - after));
      lease next;
      if (overlap && !following.empty()) { next = lease_set(run, following); }
      compute_set(run, work, set, current, input, sum);
      current.release();
      if (!overlap && !following.empty()) { next = lease_set(run, following); }
      current = std::move(next);
    }
  }

  [[nodiscard]] lease lease_set(pass<Backend>& run,
                                std::span<expert_batch::entry const> set) const {
    std::vector<block_id> ids;
    ids.reserve(set.size());
    for (auto const& one : set) { ids.push_back(id_of(one)); }
    return run.store.acquire(run.backend.stream(), ids);
  }

  /// Computes the experts that are here first and the others as they arrive, then adds all in
  /// ascending order.
  void compute_set(pass<Backend>& run,
                   workspace& work,
                   std::span<expert_batch::entry const> set,
                   lease const& leased,
                   typename Backend::activations const& input,
                   float* sum) const {
    std::size_t const hidden = static_cast<std::size_t>(config_.hidden);
    std::size_t rows = 0;
    for (auto const& one : set) { rows += one.count; }
    run.backend.resize(work.outputs, rows * hidden);
    std::vector<float*> out(set.size());
    float* at = work.outputs.data();
    for (std::size_t i = 0; i < set.size(); ++i) {
      out[i] = at;
      at += set[i].count * hidden;
    }
    std::vector<std::size_t> waiting(set.size());
    for (std::size_t i = 0; i < set.size(); ++i) { waiting[i] = i; }
    while (!waiting.empty()) {
      std::vector<std::size_t> here, later;
      for (auto const i : waiting) { (leased.arrived(i) ? here : later).push_back(i); }
      if (here.empty()) {
        here.push_back(later.front());
        later.erase(later.begin());
      }
      work.tasks.clear();
      for (auto const i : here) {
        leased.wait(i);
        work.tasks.push_back({leased[i].matrix(0),
                              leased[i].matrix(1),
                              leased[i].matrix(2),
                              work.batch.tokens(set[i]),
                              out[i]});
      }
      run.backend.expert_ffn(input, work.tasks);
      waiting = std::move(later);
    }
    for (std::size_t i = 0; i < set.size(); ++i) {
      run.backend.add_weighted_rows(
          out[i], work.batch.tokens(set[i]), work.batch.weights(set[i]), hidden, sum);
    }
  }

  /// Sets larger than this are computed in parts, so that kept outputs stay small beside the
  /// experts themselves.
  static constexpr std::size_t most_kept_outputs = 1024;
  static constexpr std::size_t most_experts_a_set = 32;

  decoder_config config_;
  std::uint32_t layer_;
};

}  // namespace terrace::model
