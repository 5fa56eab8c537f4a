// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/gated_activation.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/activations.hpp>

#include <cstddef>
#include <cstdint>

/// Routed experts whose ids the host need not know. Pair p = t * top_k + s is token t's choice s.
namespace terrace::kernel::cuda {

/// What all experts of a layer share. The three types may differ.
struct expert_shape {
  std::size_t experts = 0;
  std::size_t top_k = 0;
  matrix_layout gate{}, up{};  ///< [d_ff, d_model], offsets from the start of an expert's block
  matrix_layout down{};        ///< [d_model, d_ff]
  gated_activation activation{};
  std::uint32_t layer = 0;  ///< named by a fault
};

/// Where one expert is.
struct expert_entry {
  std::byte const* block = nullptr;          ///< null: absent
  float multiplier[3] = {1.0F, 1.0F, 1.0F};  ///< of gate, up, down
};

/// The first thing that went wrong in a kernel. All zeros before.
struct device_fault {
  static constexpr std::uint32_t bad_expert =
      1;  ///< the router named an expert that does not exist
  static constexpr std::uint32_t not_finite = 2;  ///< an expert's output holds NaN or an infinity
  std::uint32_t kind = 0;
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
};

/// Bytes of scratch for expert_rows.
[[nodiscard]] std::size_t expert_scratch_bytes(numerics mode,
                                               expert_shape const& shape,
                                               std::size_t tokens) noexcept;

/// Row p of rows [tokens * top_k, d_model] = down(act(gate x, up x)) of expert ids[p], in float32
/// in both numerics; enqueues on `on`. Rows of absent experts stay as they are: a later call with
/// another table fills them. A row's bits depend on its expert, its token and the numerics (`fast`:
/// also on whether there are more than most_coded_tokens), on nothing else. Under `fast`, up to
/// most_coded_tokens and the gated rows between are codes, and more are bfloat16, if all three
/// types take them, as in matmul.
///
/// Shapes: table [experts]; x [tokens, d_model]; ids [tokens, top_k]; scratch as above; all on the
///         device.
/// Errors: contract_error when widths disagree or on the host's stream; cuda_error, device_lost. An
///         id of `experts` or more is skipped and written to `fault`.
/// Cost:   an expert is read once for each pair that chose it; under
///         `fast` once for 128 pairs that chose it.
void expert_rows(stream_ref on,
                 expert_shape const& shape,
                 expert_entry const* table,
                 activations const& x,
                 expert_id const* ids,
                 float* rows,
                 void* scratch,
                 device_fault* fault);

/// sum [tokens, d_model] += gates * rows, a token's rows in ascending order of expert id.
/// Errors: as above; a row with a value that is not finite is written to `fault`.
void combine(stream_ref on,
             expert_shape const& shape,
             expert_id const* ids,
             float const* gates,
             float const* rows,
             std::size_t tokens,
             float* sum,
             device_fault* fault);

}  // namespace terrace::kernel::cuda
