// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chains.hpp"

#include <terrace/chain/tier_chain.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>
#include <terrace/tier/pmem.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

/// What chains are put together from, for the sources that instantiate them.
namespace terrace::runner {

template <class Tier>
using any_level = level<Tier, evict::any>;

/// A tier of the size that the setup gives its level.
template <class Tier>
[[nodiscard]] Tier make_tier(chain_setup const& setup, std::size_t bytes) {
  if constexpr (requires { Tier::options::staging; }) {
    typename Tier::options wanted;
    wanted.device = setup.device;
    wanted.staging = {.staging_bytes = setup.staging.bytes, .slot_bytes = setup.staging.slot_bytes};
    return Tier{bytes, wanted};
  } else if constexpr (requires { Tier::options::device; }) {
    return Tier{bytes, {.device = setup.device}};
  } else if constexpr (std::constructible_from<Tier, pmem_location const&>) {
    return Tier{{.path = setup.pmem_path, .capacity_bytes = bytes}};
  } else {
    return Tier{bytes};
  }
}

template <class Tier>
[[nodiscard]] any_level<Tier> make_level(chain_setup const& setup, std::size_t index) {
  return {.memory = make_tier<Tier>(setup, setup.level_bytes[index]),
          .evict = evict::any{{setup.evict}},
          .expert_slots = index == 0 ? setup.expert_slots : unlimited};
}

/// A store over `levels` and the model's files.
template <class... Levels>
[[nodiscard]] std::unique_ptr<any_store> bind(chain_setup const& setup,
                                              format::catalog const& catalog,
                                              std::function<ticket(stream_ref)> work_so_far,
                                              Levels... levels) {
  using chain = tier_chain<Levels..., home<nvme>>;
  return std::make_unique<store<chain, prefetch::any>>(
      chain{std::move(levels)..., home<nvme>{nvme{catalog.files(), setup.home}}},
      catalog.blocks(),
      prefetch::any{{setup.prefetch}},
      store_options{.placements = setup.placements, .work_so_far = std::move(work_so_far)});
}

#if defined(TERRACE_HAS_CUDA)
/// `make_store` for chains with a tier that belongs to a device.
[[nodiscard]] std::unique_ptr<any_store> make_cuda_store(chain_setup const& setup,
                                                         format::catalog const& catalog);
#endif

}  // namespace terrace::runner
