// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/head_product.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// The small products of latent attention for all heads and tokens, with float32 inputs in both
/// numerics. All pointers are device memory; enqueues on `on`. The bits of a result depend on its
/// head's factor and on its input only.
///
/// Errors: contract_error when the heads' rows are not in the matrix, its rows are no whole blocks,
///         a scale grid has no scales, or on the host's stream; not_supported for types nobody
///         knows; cuda_error, device_lost.
void head_products(stream_ref on, head_product const& all, std::size_t tokens);

}  // namespace terrace::kernel::cuda
