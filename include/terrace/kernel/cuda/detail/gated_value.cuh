// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/gated_activation.hpp>
#include <terrace/kernel/cuda/detail/exponential.cuh>

namespace terrace::kernel::cuda::detail {

__device__ __forceinline__ float swiglu_value(float gate, float up) {
  return __fmul_rn(gate / (1.0F + exponential(-gate)), up);
}

__device__ __forceinline__ float situ_value(gated_activation const& how, float gate, float up) {
  float const left =
      __fmul_rn(__fmul_rn(how.beta, hyperbolic_tangent(gate / how.beta)), sigmoid(gate));
  return __fmul_rn(left, __fmul_rn(how.linear_beta, hyperbolic_tangent(up / how.linear_beta)));
}

/// The activation of one gate and its up, with the CPU's bits.
__device__ __forceinline__ float gated_value(gated_activation const& how, float gate, float up) {
  return how.type == gated_activation::kind::situ ? situ_value(how, gate, up)
                                                  : swiglu_value(gate, up);
}

}  // namespace terrace::kernel::cuda::detail
