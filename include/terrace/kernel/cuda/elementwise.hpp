// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// y[i] += x[i] for n values of memory that the stream's device reads and writes; enqueues on `on`.
/// Errors: contract_error on the host's stream; cuda_error, device_lost.
void add(stream_ref on, float const* x, std::size_t n, float* y);

}  // namespace terrace::kernel::cuda
