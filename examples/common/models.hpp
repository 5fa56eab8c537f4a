// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/metadata.hpp>
#include <terrace/model/config.hpp>
#include <terrace/runtime/pipeline.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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

/// Sizes of a model whose weights are not here, from metadata alone; `vocab` included.
/// Errors: not_supported for an architecture that is none of the families'.
[[nodiscard]] model::decoder_config read_decoder_config(metadata const& meta);
/// How each layer keeps its part of a sequence.
[[nodiscard]] std::vector<sequence::page_layout> state_layouts(model::decoder_config const& config,
                                                               bool half_kv);

}  // namespace terrace::runner
