// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/lease.hpp>
#include <terrace/chain/residency_watcher.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/observe/counters.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace terrace::runtime::detail {

/// A store in which everything is here and nothing has an address: for a pass that computes nothing
/// but counts what a backend would allocate.
class paper_store final : public any_store, private lease::source {
 public:
  explicit paper_store(format::catalog const& catalog) : catalog_{&catalog} {}

  [[nodiscard]] lease acquire(stream_ref on, std::span<block_id const> ids) override {
    std::vector<lease::member> members;
    members.reserve(ids.size());
    for (auto const id : ids) {
      auto const* const info = catalog_->find_block(id);
      if (info == nullptr) { throw contract_error{"the catalog has no " + to_string(id)}; }
      members.push_back({.view = {info, nullptr}, .block = 0});
    }
    return {*this, on, std::move(members)};
  }
  std::size_t prefetch(std::span<block_id const> /*ids*/) override { return 0; }
  void hint(lookahead const& /*ahead*/) override {}
  [[nodiscard]] std::byte* reserve_state(block_id /*id*/, std::size_t /*bytes*/) override {
    return nullptr;
  }
  void release_state(block_id /*id*/) noexcept override {}
  void watch(residency_watcher* watcher) override {
    if (watcher == nullptr) { return; }
    for (auto const& block : catalog_->blocks()) { watcher->arrived(block, nullptr); }
  }
  void tick() noexcept override {}
  [[nodiscard]] tier_traits traits_of(block_id /*id*/) const override {
    return {.device_readable = true, .device_local = true};
  }
  [[nodiscard]] std::size_t room_for(block_id /*id*/) const override {
    return std::numeric_limits<std::size_t>::max();
  }
  [[nodiscard]] std::vector<observe::tier_counters> counters() const override { return {}; }

 private:
  bool block_arrived(std::size_t /*block*/) noexcept override { return true; }
  void wait_for_block(std::size_t /*block*/) override {}
  void release(stream_ref /*on*/, std::span<lease::member const> /*members*/) noexcept override {}

  format::catalog const* catalog_;
};

}  // namespace terrace::runtime::detail
