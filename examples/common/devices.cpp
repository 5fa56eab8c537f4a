// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace terrace::runner {
namespace {

void require_device(int device) {
  if (device >= 0 && device < cuda_devices()) { return; }
  throw contract_error{
      fmt::format("CUDA device {} was asked for, but this machine has {}; devices are counted from "
                  "0 (--device)",
                  device,
                  cuda_devices())};
}

}  // namespace

#if defined(TERRACE_HAS_CUDA)

int cuda_devices() noexcept { return shim::device_count(); }

std::uint64_t usable_device_bytes(int device) {
  require_device(device);
  std::uint64_t const free = shim::query_device_memory(device).free_bytes;
  return free - std::min(free / 8, 256 * mib);
}

bool reads_pageable_memory(int device) {
  require_device(device);
  return shim::query_device(device).pageable_memory_access;
}

#else

int cuda_devices() noexcept { return 0; }

std::uint64_t usable_device_bytes(int device) {
  require_device(device);
  return 0;
}

bool reads_pageable_memory(int device) {
  require_device(device);
  return false;
}

#endif

}  // namespace terrace::runner
