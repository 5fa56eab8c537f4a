// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// Most experts a router of this backend may choose from.
inline constexpr std::size_t most_routed_experts = 1024;

/// Chooses experts for each token, with the CPU's bits: sigmoid(logit) + bias chooses, the sigmoid
/// weighs.
///
/// Shapes:   logits [tokens, experts]; bias [experts] or null for zeros; ids, weights [tokens,
///           top_k]; all on the device.
/// Ordering: ids by descending biased score, equal scores by ascending id; a NaN score comes last.
/// Errors:   contract_error unless 1 <= top_k <= experts <= most_routed_experts, and on the host's
///           stream; cuda_error, device_lost.
void route(stream_ref on,
           sigmoid_router const& router,
           float const* logits,
           float const* bias,
           std::size_t tokens,
           expert_id* ids,
           float* weights);

}  // namespace terrace::kernel::cuda
