// SPDX-License-Identifier: Apache-2.0
#pragma once

// The words of CUDA C++ that g++ does not know. Blocks of a launch run one after the other on one
// host thread, so memory shared by a block is memory of that thread. (No __noinline__: the standard
// library uses it as an attribute.)

#define __CUDA_ARCH__ 900
#define CUDART_VERSION 13000

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
