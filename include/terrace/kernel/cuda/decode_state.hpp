// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace terrace::kernel::cuda {

/// What changes from one step of a sequence to the next. Kernels read it from device memory, so
/// that a captured graph serves every step.
struct decode_state {
  std::uint32_t position = 0;  ///< of token 0 of the batch
};

}  // namespace terrace::kernel::cuda
