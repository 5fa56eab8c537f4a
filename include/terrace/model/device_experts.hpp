// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/lease.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/expert_sets.hpp>
#include <terrace/model/host_experts.hpp>
#include <terrace/model/pass.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace terrace::model {

/// The routed experts of one layer on a device.
///
/// When all of them are where the device reads them, kernels look them up in the directory and the
/// host never learns what was chosen. Else the host leases what was chosen, and experts that are
/// here compute while the others arrive. Either way each choice has a row of its own, and a token's
/// rows are added in ascending order of expert id: bits do not depend on what was resident.
///
/// Where the host reads the experts too, a dispatch policy may have it compute them instead.
template <class Backend>
class device_experts {
  using host_backend = typename Backend::host_backend;

 public:
  /// What one computation needs beside weights; one serves all layers in turn.
  struct workspace {
    typename Backend::template buffer<float> rows;  ///< [tokens, top_k, width]
    typename Backend::expert_table leased;
    std::vector<expert_id> chosen_here, distinct;
    // For what the host computes.
    typename Backend::template buffer<float> host_sum;
    std::vector<float> x_here, gates_here, sum_here;
    typename host_backend::activations input;
    typename host_experts<host_backend>::workspace host;
  };

  /// Errors: not_supported when the experts of the layer differ in type or layout.
  device_experts(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config},
        layer_{static_cast<std::uint32_t>(layer)},
        first_{catalog.find_block(expert_block(layer_, expert_id{0}))},
        on_host_{catalog, config, layer} {
    if (first_ != nullptr) { check_alike(catalog); }
  }

  /// sum [tokens, width] += the weighted outputs of the chosen experts, which read and write
  /// `width` values.
  ///
  /// Shapes: x [tokens, width], `input` the same prepared; chosen, gates [tokens, top_k].
  void add_to(pass<Backend>& run,
              workspace& work,
              float const* x,
              typename Backend::activations const& input,
              expert_id const* chosen,
              float const* gates,
              float* sum) const {
    auto const traits = run.store.traits_of(first_->id);
    bool const a_choice =
        run.device.host != nullptr && traits.host_readable && !traits.device_local;
    auto const* const whole = run.device.directory->whole(layer_);
    if (whole != nullptr && !a_choice) {
      return compute(run, work, input, chosen, gates, sum, whole);
    }
    read_choices(run, work, chosen);
    if (!a_choice) { return compute(run, work, input, chosen, gates, sum, whole); }

    expert_work const what{.layer = layer_,
                           .tokens = run.tokens,
                           .experts = work.distinct.size(),
                           .missing = work.distinct.size()};
    auto const how = run.device.host->dispatch.choose(what);
    if (how.timed) { run.backend.drain(); }
    auto const start = std::chrono::steady_clock::now();
    if (how.side == compute_side::host) {
      compute_on_host(run, work, x, gates, sum);
    } else {
      compute(run, work, input, chosen, gates, sum, whole);
    }
    if (!how.timed) { return; }
    run.backend.drain();
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    run.device.host->dispatch.observe(what, how.side, took.count());
  }

 private:
  void check_alike(format::catalog const& catalog) const {
    for (int expert = 1; expert < config_.experts; ++expert) {
      auto const* const other =
          catalog.find_block(expert_block(layer_, expert_id{static_cast<std::uint32_t>(expert)}));
      if (other == nullptr) { continue; }  // the mixture's own check names what is missing
      bool const alike =
          std::equal(first_->matrices.begin(),
                     first_->matrices.end(),
                     other->matrices.begin(),
                     other->matrices.end(),
                     [](matrix_layout const& a, matrix_layout const& b) {
                       return a.type == b.type && a.rows == b.rows && a.cols == b.cols &&
                              a.data_offset == b.data_offset && a.grid == b.grid &&
                              (a.grid == scale_grid::none ||
                               (a.scale_type == b.scale_type && a.scale_offset == b.scale_offset));
                     });
      if (!alike) {
        throw not_supported{catalog.files().front().string() + ": " + to_string(other->id) +
                            " has other types than expert 0 of its layer; a device runs layers "
                            "whose experts are alike, use --backend cpu"};
      }
    }
  }

  /// Brings the choices to the host: work.chosen_here as they are, work.distinct ascending.
  void read_choices(pass<Backend>& run, workspace& work, expert_id const* chosen) const {
    std::size_t const choices = run.tokens * static_cast<std::size_t>(config_.top_k);
    auto const here = run.backend.read(chosen, choices, work.chosen_here);
    for (auto const one : here) {
      if (static_cast<int>(one) >= config_.experts || static_cast<int>(one) < 0) {
        throw error{"the router of layer " + std::to_string(static_cast<std::uint32_t>(layer_)) +
                    " chose expert " + std::to_string(static_cast<std::uint32_t>(one)) + " of " +
                    std::to_string(config_.experts) + "; its weights or its input are damaged"};
      }
    }
    work.distinct.assign(here.begin(), here.end());
    std::sort(work.distinct.begin(), work.distinct.end());
    work.distinct.erase(std::unique(work.distinct.begin(), work.distinct.end()),
                        work.distinct.end());
  }

  /// On the device; `whole` is the layer's table, or null when work.distinct must be leased.
  void compute(pass<Backend>& run,
               workspace& work,
               typename Backend::activations const& input,
               expert_id const* chosen,
               float const* gates,
               float* sum,
               typename Backend::expert_table const* whole) const {
    auto& backend = run.backend;
    auto const shape = backend.shape_of(*first_,
                                        static_cast<std::size_t>(config_.experts),
                                        static_cast<std::size_t>(config_.top_k),
                                        config_.activation);
    backend.resize(work.rows, run.tokens * shape.top_k * shape.down.rows);
    if (whole != nullptr) {
      backend.expert_rows(shape, *whole, input, chosen, work.rows.data());
    } else {
      compute_leased(run, work, shape, input, chosen);
    }
    backend.combine(shape, chosen, gates, work.rows.data(), run.tokens, sum);
  }

  void compute_leased(pass<Backend>& run,
                      workspace& work,
                      typename Backend::expert_shape const& shape,
                      typename Backend::activations const& input,
                      expert_id const* chosen) const {
    auto& backend = run.backend;
    work.leased.assign(shape.experts);
    for_each_expert_set(
        run.store,
        backend.stream(),
        layer_,
        work.distinct,
        std::numeric_limits<std::size_t>::max(),
        [&](std::size_t first, std::size_t count, lease const& leased) {
          auto const members = std::span{work.distinct}.subspan(first, count);
          compute_as_they_arrive(leased, count, [&](std::span<std::size_t const> here) {
            for (auto const i : here) {
              work.leased.set(
                  static_cast<std::size_t>(members[i]), *leased[i].info, leased[i].address);
            }
            backend.send(work.leased);
            backend.expert_rows(shape, work.leased, input, chosen, work.rows.data());
            for (auto const i : here) { work.leased.clear(static_cast<std::size_t>(members[i])); }
          });
        });
  }

  /// On the host, where the experts lie, for choices that read_choices brought here.
  void compute_on_host(
      pass<Backend>& run, workspace& work, float const* x, float const* gates, float* sum) const {
    auto& backend = run.backend;
    auto& host = run.device.host->backend;
    std::size_t const width = first_->matrices[0].cols;
    std::size_t const values = run.tokens * width;
    auto const x_here = backend.read(x, values, work.x_here);
    auto const gates_here = backend.read(gates, work.chosen_here.size(), work.gates_here);
    work.sum_here.assign(values, 0.0F);
    host.prepare(work.input, x_here.data(), run.tokens, width);
    on_host_.add_to(host,
                    run.store,
                    run.tokens,
                    work.host,
                    work.input,
                    work.chosen_here.data(),
                    gates_here.data(),
                    work.sum_here.data());
    backend.resize(work.host_sum, values);
    backend.write(work.sum_here, work.host_sum.data());
    backend.add(work.host_sum.data(), values, sum);
  }

  decoder_config config_;
  layer_id layer_;
  block_info const* first_;  ///< expert 0, which all others are like
  host_experts<host_backend> on_host_;
};

}  // namespace terrace::model
