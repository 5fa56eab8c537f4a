// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stands in for the toolkit's header of this name; see the README beside this folder.
#include <cuda_runtime_api.h>

#include <emulated_cuda/block.hpp>
#include <emulated_cuda/intrinsics.hpp>

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace emulated_cuda {
/// Queues a launch; `kernel` identifies the function for cudaFuncSetAttribute.
cudaError_t launch(cudaLaunchConfig_t const& config,
                   void const* kernel,
                   std::function<void()> thread_body);
}  // namespace emulated_cuda

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  auto packed = std::make_shared<std::tuple<std::remove_cv_t<Parameters>...> const>(
      std::forward<Arguments>(arguments)...);
  return emulated_cuda::launch(*config, reinterpret_cast<void const*>(kernel), [kernel, packed] {
    std::apply(kernel, *packed);
  });
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                 cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<void const*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<void const*>(kernel));
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void (*kernel)(Parameters...),
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<void const*>(kernel), block_size, shared_bytes);
}
template <class T>
cudaError_t cudaMalloc(T** at, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(at), bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** at, std::size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(at), bytes, flags);
}
template <class T>
cudaError_t cudaHostAlloc(T** at, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(at), bytes, flags);
}
/// A __constant__ or __device__ variable is an ordinary one here.
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol,
                                    void const* from,
                                    std::size_t bytes,
                                    std::size_t offset,
                                    cudaMemcpyKind,
                                    cudaStream_t on) {
  return emulated_cuda::copy_to_variable(
      const_cast<char*>(reinterpret_cast<char const*>(&symbol)) + offset,
      sizeof(T) - offset,
      from,
      bytes,
      on);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol,
                               void const* from,
                               std::size_t bytes,
                               std::size_t offset = 0) {
  cudaError_t const code =
      cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, cudaMemcpyHostToDevice, nullptr);
  return code != cudaSuccess ? code : cudaStreamSynchronize(nullptr);
}
