// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/inner_values.hpp>
#include <terrace/runtime/plan.hpp>
#include <terrace/sequence/state_pages.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace terrace::runtime {

/// Which kernels a pipeline computes with.
enum class compute_backend : std::uint8_t { cpu, cuda };

struct pipeline_options {
  compute_backend backend = compute_backend::cpu;
  int device = 0;  ///< of the cuda backend
  /// Of the cuda backend, where the host reads the experts too: device, host, min-batch:N or auto.
  std::string dispatch = "device";
  numerics mode = numerics::fast;
  int threads = 1;
  int context_tokens = 0;   ///< 0: the model's own limit, at most 4096
  bool half_kv = true;      ///< sequence state as IEEE half instead of float32
  int snapshots = 0;        ///< of the sequence, kept at a time: planned for
  int prefill_chunk = 256;  ///< tokens of a prompt that go through together; never depends on a cap
  bool read_ahead = true;   ///< start reading the next step's dense blocks early
  bool look_ahead = false;  ///< score later routers early and hint the store
  /// Called while pinned blocks are being read: bytes done and bytes in all.
  std::function<void(std::uint64_t, std::uint64_t)> on_load;
};

/// One model bound to a store: ids in, logits out. Holds one sequence. Used by one thread at a
/// time.
class pipeline {
 public:
  virtual ~pipeline() = default;

  /// Appends `ids` to the sequence and returns the logits [vocab] of the last of them, valid until
  /// the next call.
  /// Errors: contract_error for no ids, an id outside the vocabulary or a full context; what the store throws. After an
  ///         error the sequence must be reset.
  [[nodiscard]] virtual std::span<float const> decode(std::span<std::int32_t const> ids) = 0;

  /// Negative log-likelihood (natural log) of ids[1..] given what precedes each, as a sequence of
  /// its own.
  [[nodiscard]] virtual std::vector<float> nll(std::span<std::int32_t const> ids) = 0;

  /// Forgets the sequence and gives its state back.
  virtual void reset() noexcept = 0;

  /// The sequence as it is now. Full pages of rows are shared with it and the rest is copied, so it
  /// may be restored any number of times: to take tokens back, or to let two texts go on from one.
  /// It counts under the fastest tier and must not outlive the store.
  /// Errors: out_of_capacity when the tier has no room for it; ask for `options.snapshots`.
  [[nodiscard]] virtual sequence::snapshot snapshot() = 0;
  /// Makes the sequence what it was when `kept` was taken, to the byte.
  /// Errors: contract_error for another model's; out_of_capacity, after which the sequence is empty.
  virtual void restore(sequence::snapshot const& kept) = 0;
  /// What a layer keeps of the sequence: its pages one after the other, as they lie in memory.
  [[nodiscard]] virtual std::vector<std::byte> state(int layer) = 0;
  [[nodiscard]] virtual int position() const noexcept = 0;
  [[nodiscard]] virtual int context_tokens() const noexcept = 0;
  [[nodiscard]] virtual int vocab_size() const noexcept = 0;

  /// From now on appends each token's experts, [mixture layer][top_k] by descending weight; null
  /// stops it.
  virtual void record_routing(std::vector<std::uint16_t>* experts) noexcept = 0;
  /// From now on tells `watcher` of values inside each pass; an empty one stops it.
  virtual void watch(model::inner_watcher watcher) noexcept = 0;

 protected:
  pipeline() = default;
  pipeline(pipeline const&) = default;
  pipeline& operator=(pipeline const&) = default;
};

/// What a catalog's model asks of memory. `counted` gives what the fastest tier counts for a number
/// of bytes.
/// Errors: format_error or not_supported for a model terrace cannot run, before any weight is read.
[[nodiscard]] requirements inspect(format::catalog const& catalog,
                                   pipeline_options const& options,
                                   std::function<std::uint64_t(std::uint64_t)> const& counted);

/// Binds a model to a store, reading what the plan pins. Catalog and store must outlive the
/// pipeline.
[[nodiscard]] std::unique_ptr<pipeline> make_pipeline(format::catalog const& catalog,
                                                      any_store& store,
                                                      pipeline_options const& options,
                                                      plan const& how);

}  // namespace terrace::runtime
