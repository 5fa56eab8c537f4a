// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// A block with an address: what a kernel reads. Borrowed from a lease.
struct block_view {
  block_info const* info = nullptr;
  std::byte const* address = nullptr;

  [[nodiscard]] matrix_view matrix(std::size_t index) const noexcept {
    return view_at(info->matrices[index], address);
  }
};

/// Proof that a set of blocks stays where it is while someone reads it. Move-only; dropping it
/// unpins the set, once the stream it was taken on has finished the work given to it so far.
///
/// A lease is handed out while its misses are still on their way: `arrived(i)` polls, `wait(i)`
/// blocks. Members are numbered in the order they were asked for. Addresses are fixed from the
/// start; bytes are valid once arrived.
/// Errors: `wait` throws io_error when the bytes could not be read; the lease stays valid for its other members.
class [[nodiscard]] lease {
 public:
  struct member {
    block_view view;
    std::size_t block = 0;  ///< the store's own number of the block
  };

  /// What a store implements for the leases it hands out.
  class source {
   public:
    virtual bool block_arrived(std::size_t block) noexcept = 0;
    virtual void wait_for_block(std::size_t block) = 0;
    /// The members' lease is over once work given to `on` so far is done.
    virtual void release(stream_ref on, std::span<member const> members) noexcept = 0;

   protected:
    ~source() = default;
  };

  lease() = default;
  lease(source& store, stream_ref on, std::vector<member> members) noexcept
      : store_{&store}, on_{on}, members_{std::move(members)} {}
  lease(lease&& other) noexcept
      : store_{std::exchange(other.store_, nullptr)},
        on_{other.on_},
        members_{std::move(other.members_)} {}
  lease& operator=(lease&& other) noexcept {
    if (this != &other) {
      release();
      store_ = std::exchange(other.store_, nullptr);
      on_ = other.on_;
      members_ = std::move(other.members_);
    }
    return *this;
  }
  ~lease() { release(); }

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] bool arrived(std::size_t index) const noexcept {
    return store_->block_arrived(members_[index].block);
  }
  void wait(std::size_t index) const { store_->wait_for_block(members_[index].block); }
  void wait_all() const {
    for (std::size_t i = 0; i < size(); ++i) { wait(i); }
  }
  /// The member's block; its bytes may be read only once it has arrived.
  [[nodiscard]] block_view const& operator[](std::size_t index) const noexcept {
    return members_[index].view;
  }

  void release() noexcept {
    if (store_ == nullptr) { return; }
    store_->release(on_, members_);
    store_ = nullptr;
    members_.clear();
  }

 private:
  source* store_ = nullptr;
  stream_ref on_ = stream_ref::host();
  std::vector<member> members_;
};

}  // namespace terrace
