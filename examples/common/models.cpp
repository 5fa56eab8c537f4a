// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <terrace/runtime/basic_pipeline.hpp>

namespace terrace::runner {

runtime::requirements inspect_model(format::catalog const& catalog,
                                    runtime::pipeline_options const& options,
                                    std::function<std::uint64_t(std::uint64_t)> const& counted) {
  return runtime::inspect(catalog, options, counted);
}

std::unique_ptr<runtime::pipeline> make_model_pipeline(format::catalog const& catalog,
                                                       any_store& store,
                                                       runtime::pipeline_options const& options,
                                                       runtime::plan const& how) {
  return runtime::make_pipeline(catalog, store, options, how);
}

}  // namespace terrace::runner
