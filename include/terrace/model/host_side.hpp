// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/numerics.hpp>
#include <terrace/dispatch/any.hpp>

#include <string_view>

namespace terrace::model {

/// What a device pipeline has beside its device: who decides where experts are computed, and the
/// backend that computes them on the host.
template <class HostBackend>
struct host_side {
  host_side(std::string_view policy, int threads, numerics mode)
      : dispatch{policy}, backend{threads, mode} {}

  dispatch::any dispatch;
  HostBackend backend;
};

}  // namespace terrace::model
