// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/runtime/pipeline.hpp>

#include <memory>

namespace terrace::runner {

/// `runtime::inspect` and `runtime::make_pipeline`, compiled once: models and kernels take long to
/// compile, so no other source includes them.
[[nodiscard]] runtime::requirements inspect_model(
    format::catalog const& catalog,
    runtime::pipeline_options const& options,
    std::function<std::uint64_t(std::uint64_t)> const& counted);
[[nodiscard]] std::unique_ptr<runtime::pipeline> make_model_pipeline(
    format::catalog const& catalog,
    any_store& store,
    runtime::pipeline_options const& options,
    runtime::plan const& how);

}  // namespace terrace::runner
