// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <terrace/runtime/basic_pipeline.hpp>

#include <string>
#include <tuple>
#include <utility>

namespace terrace::runner {
namespace {

using families =
    std::tuple<model::llama, model::minimax_m2, model::kimi_k2, model::kimi_k3, model::kimi_linear>;

/// Calls f<Family>() for the family of that architecture; false if there is none.
template <class F>
bool with_family(std::string const& architecture, F&& f) {
  auto const try_one = [&]<class Family>() {
    if (architecture != Family::architecture) { return false; }
    f.template operator()<Family>();
    return true;
  };
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (try_one.template operator()<std::tuple_element_t<I, families>>() || ...);
  }(std::make_index_sequence<std::tuple_size_v<families>>{});
}

}  // namespace

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

model::decoder_config read_decoder_config(metadata const& meta) {
  auto const architecture = meta.get_string("general.architecture");
  model::decoder_config config;
  bool const known =
      with_family(architecture, [&]<class Family>() { config = Family::read_config(meta); });
  if (!known) {
    throw not_supported{meta.source() + ": no runner of this version takes the architecture `" +
                        architecture + "`"};
  }
  config.vocab = meta.get_count(architecture + ".vocab_size");
  return config;
}

std::vector<sequence::page_layout> state_layouts(model::decoder_config const& config,
                                                 bool half_kv) {
  std::vector<sequence::page_layout> layouts;
  with_family(config.architecture, [&]<class Family>() {
    layouts = runtime::basic_pipeline<Family, kernel::cpu::backend>::state_layouts(config, half_kv);
  });
  return layouts;
}

}  // namespace terrace::runner
