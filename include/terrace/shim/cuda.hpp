// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/error.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/core/units.hpp>

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

/// The CUDA runtime as terrace uses it. Device numbers are CUDA's; every call that has a stream
/// takes it first.
namespace terrace::shim {

/// Whether `code` means that the device's context is gone for good.
[[nodiscard]] constexpr bool is_sticky(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// "out of memory (cudaErrorMemoryAllocation)".
[[nodiscard]] inline std::string cuda_text(cudaError_t code) {
  return std::string{cudaGetErrorString(code)} + " (" + cudaGetErrorName(code) + ")";
}

/// Throws what `code` means; `what` begins the sentence, as "copying 4 MiB to device 0".
[[noreturn]] inline void fail(cudaError_t code, std::string_view what) {
  static_cast<void>(cudaGetLastError());  // or the next, innocent call would report it
  std::string const sentence = std::string{what} + " failed: " + cuda_text(code);
  if (is_sticky(code)) {
    throw device_lost{sentence + "; the device can do nothing more in this process, start it again",
                      code};
  }
  throw cuda_error{sentence, code};
}

/// Errors: device_lost for a failure that ends the device's context, cuda_error for any other.
inline void check(cudaError_t code,
                  std::source_location const& at = std::source_location::current()) {
  if (code == cudaSuccess) { return; }
  fail(code, "the CUDA call at " + std::string{at.file_name()} + ":" + std::to_string(at.line()));
}
/// As above, with words instead of a place: what the call was for.
inline void check(cudaError_t code, std::string_view what) {
  if (code != cudaSuccess) { fail(code, what); }
}

/// Owns a CUDA handle of type T that `Destroy` ends.
template <class T, cudaError_t (*Destroy)(T)>
class unique_cuda {
 public:
  unique_cuda() = default;
  explicit unique_cuda(T handle) noexcept : handle_{handle} {}
  unique_cuda(unique_cuda&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
  unique_cuda& operator=(unique_cuda&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~unique_cuda() { reset(); }

  [[nodiscard]] T get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void reset() noexcept {
    if (handle_ != nullptr) { static_cast<void>(Destroy(std::exchange(handle_, nullptr))); }
  }

 private:
  T handle_ = nullptr;
};
using unique_stream = unique_cuda<cudaStream_t, cudaStreamDestroy>;
using unique_event = unique_cuda<cudaEvent_t, cudaEventDestroy>;
using unique_graph = unique_cuda<cudaGraph_t, cudaGraphDestroy>;
using unique_graph_exec = unique_cuda<cudaGraphExec_t, cudaGraphExecDestroy>;

/// Makes `device` the calling thread's device for a scope.
class device_scope {
 public:
  explicit device_scope(int device) {
    check(cudaGetDevice(&before_), "asking for the current CUDA device");
    if (device != before_) {
      check(cudaSetDevice(device), "choosing CUDA device " + std::to_string(device));
    }
    changed_ = device != before_;
  }
  device_scope(device_scope const&) = delete;
  device_scope& operator=(device_scope const&) = delete;
  ~device_scope() {
    if (changed_) { static_cast<void>(cudaSetDevice(before_)); }
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// How many devices there are; 0 without a driver.
[[nodiscard]] inline int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

/// What a device is. Free memory changes and is asked for with `query_device_memory`.
struct device_facts {
  std::string name;
  std::uint64_t total_bytes = 0;
  int compute_capability = 0;  ///< 90 for sm_90
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  ///< the most a launch may ask for
  bool concurrent_managed_access = false;
  bool pageable_memory_access = false;
  bool integrated = false;
};

/// Errors: cuda_error for a device that does not exist.
[[nodiscard]] inline device_facts query_device(int device) {
  auto ask = [device](cudaDeviceAttr attribute) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device),
          "asking about CUDA device " + std::to_string(device));
    return value;
  };
  device_facts facts;
  facts.compute_capability =
      10 * ask(cudaDevAttrComputeCapabilityMajor) + ask(cudaDevAttrComputeCapabilityMinor);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device),
        "asking about CUDA device " + std::to_string(device));
  facts.name = properties.name;
  facts.total_bytes = properties.totalGlobalMem;
  facts.multiprocessors = ask(cudaDevAttrMultiProcessorCount);
  facts.shared_bytes_per_block = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  facts.concurrent_managed_access = ask(cudaDevAttrConcurrentManagedAccess) != 0;
  facts.pageable_memory_access = ask(cudaDevAttrPageableMemoryAccess) != 0;
  facts.integrated = ask(cudaDevAttrIntegrated) != 0;
  return facts;
}

struct device_memory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
[[nodiscard]] inline device_memory query_device_memory(int device) {
  device_scope const scope{device};
  device_memory memory;
  check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes),
        "asking for the free memory of CUDA device " + std::to_string(device));
  return memory;
}

/// A stream of `device` that waits for no other.
[[nodiscard]] inline unique_stream make_stream(int device) {
  device_scope const scope{device};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
        "making a stream on CUDA device " + std::to_string(device));
  return unique_stream{stream};
}
/// An event of `device`; `timed` costs a little with each record.
[[nodiscard]] inline unique_event make_event(int device, bool timed = false) {
  device_scope const scope{device};
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "making an event on CUDA device " + std::to_string(device));
  return unique_event{event};
}
inline void record(stream_ref on, cudaEvent_t event) {
  check(cudaEventRecord(event, on.get()), "recording an event");
}
/// Later work on `on` starts after what `event` was last recorded behind.
inline void wait(stream_ref on, cudaEvent_t event) {
  check(cudaStreamWaitEvent(on.get(), event, 0), "making a stream wait for an event");
}
/// Blocks until everything on the stream is done; reports what failed there.
inline void synchronize(stream_ref on) {
  check(cudaStreamSynchronize(on.get()), "waiting for a stream");
}

/// Copies between any two of host and device memory, in the order of the stream. Pageable host
/// memory makes it slow. `words` answers what the sentence of a refused copy begins with.
template <std::invocable Words>
void copy(stream_ref on, void* to, void const* from, std::size_t bytes, Words&& words) {
  cudaError_t const code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.get());
  if (code != cudaSuccess) { fail(code, words()); }
}
inline void copy(stream_ref on, void* to, void const* from, std::size_t bytes) {
  copy(on, to, from, bytes, [bytes] { return "copying " + format_size(bytes); });
}
/// Sets bytes of device, pinned or managed memory, in the order of the stream.
inline void fill(stream_ref on, void* at, int value, std::size_t bytes) {
  cudaError_t const code = cudaMemsetAsync(at, value, bytes, on.get());
  if (code != cudaSuccess) { fail(code, "setting " + format_size(bytes)); }
}

/// How a kernel is spread.
struct launch_shape {
  dim3 grid{1};
  dim3 block{1};
  std::size_t shared_bytes = 0;
  /// May start before the kernels before it end, where devices can do that; it waits for them
  /// itself (kernel/cuda/detail/device.cuh).
  bool overlaps = false;
};

/// Whether the current device starts kernels before those before them end.
[[nodiscard]] inline bool device_overlaps_kernels() {
  int device = 0;
  int major = 0;
  check(cudaGetDevice(&device), "asking for the current CUDA device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "asking about CUDA device " + std::to_string(device));
  return major >= 9;
}

/// Queues a kernel. More than 48 KiB of dynamic shared memory is asked for on the way.
/// Errors: contract_error on the host's stream; cuda_error for a shape the device refuses; device_lost.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...),
            launch_shape const& shape,
            stream_ref on,
            Arguments&&... arguments) {
  if (on.is_host()) {
    throw contract_error{"a kernel needs a stream of its device; this call names the host"};
  }
  constexpr std::size_t granted = std::size_t{48} * 1024;
  if (shape.shared_bytes > granted) {
    check(cudaFuncSetAttribute(kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "asking for " + std::to_string(shape.shared_bytes) + " bytes of shared memory per block");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = on.get();
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  if (shape.overlaps && device_overlaps_kernels()) {
    config.attrs = &overlap;
    config.numAttrs = 1;
  }
  cudaError_t const code =
      cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (code != cudaSuccess) {
    fail(code,
         "a launch of " + std::to_string(shape.grid.x) + " x " + std::to_string(shape.grid.y) +
             " x " + std::to_string(shape.grid.z) + " blocks of " +
             std::to_string(shape.block.x * shape.block.y * shape.block.z) + " threads with " +
             std::to_string(shape.shared_bytes) + " bytes of shared memory");
  }
}

}  // namespace terrace::shim

#endif
