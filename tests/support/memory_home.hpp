// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/manual_ticket.hpp"

#include <terrace/concepts/copy_path.hpp>
#include <terrace/concepts/home.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::test {

/// A home whose files are byte vectors and whose reads the test ends in any order.
///
/// A read that is waited for ends by itself. Until a read ends its destination holds 0xA5, so that
/// whoever looks too early sees it. Copies share their reads: keep one, give the other to a chain.
class memory_home {
 public:
  static constexpr std::string_view name = "memory_home";

  explicit memory_home(std::vector<std::vector<std::byte>> files)
      : state_{std::make_shared<state>()} {
    state_->files = std::move(files);
  }

  [[nodiscard]] ticket read(std::span<file_read const> work) {
    for (file_read const& each : work) { std::memset(each.to, 0xA5, each.from.bytes); }
    auto started = std::make_shared<pending>(pending{{work.begin(), work.end()}, {}});
    started->done.when_waited(
        [shared = state_.get(), each = started.get()] { finish(*shared, *each); });
    state_->reads.push_back(started);
    return started->done.get();
  }
  [[nodiscard]] std::string mode() const { return "byte vectors"; }
  [[nodiscard]] std::size_t staging_bytes() const noexcept { return 0; }

  /// Reads started so far, ended ones included.
  [[nodiscard]] std::size_t started() const noexcept { return state_->reads.size(); }
  /// Ends the read that was started as number `index`.
  void release(std::size_t index) { finish(*state_, *state_->reads.at(index)); }
  /// Reads that end from now on fail.
  void break_down() noexcept { state_->broken = true; }

 private:
  struct pending {
    std::vector<file_read> work;
    manual_ticket done;
    bool ended = false;
  };
  struct state {
    std::vector<std::vector<std::byte>> files;
    std::vector<std::shared_ptr<pending>> reads;
    bool broken = false;
  };

  static void finish(state& shared, pending& each) {
    if (std::exchange(each.ended, true)) { return; }
    for (auto const& [from, to] : each.work) {
      auto const index = static_cast<std::size_t>(from.file);
      std::string const where =
          "file " + std::to_string(index) + " at " + std::to_string(from.offset);
      if (shared.broken) {
        return each.done.fail(std::make_exception_ptr(io_error{where + " cannot be read", EIO}));
      }
      bool const inside = index < shared.files.size() &&
                          from.offset <= shared.files[index].size() &&
                          from.bytes <= shared.files[index].size() - from.offset;
      if (!inside) {
        return each.done.fail(std::make_exception_ptr(io_error{where + " is outside the file", 0}));
      }
      std::memcpy(to, shared.files[index].data() + from.offset, from.bytes);
    }
    each.done.complete();
  }

  std::shared_ptr<state> state_;
};

static_assert(home_tier<memory_home>);

}  // namespace terrace::test

template <terrace::host_readable_tier To>
struct terrace::copy_path<terrace::test::memory_home, To> {
  static ticket start(test::memory_home& from,
                      std::span<block_extent const> parts,
                      To& to,
                      typename To::handle at) {
    std::vector<file_read> work;
    for (auto const& part : parts) { work.push_back({part.from, to.address(at) + part.to_offset}); }
    return from.read(work);
  }
};
