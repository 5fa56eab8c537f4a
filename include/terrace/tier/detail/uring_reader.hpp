// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_URING)

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/io_uring.hpp>
#include <terrace/tier/detail/read_plan.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tier::detail {

struct uring_limits {
  std::size_t queue_depth = 64;
  std::size_t piece_bytes = mib;
  std::size_t staging_bytes = 16 * mib;  ///< at least one large slot is made whatever this says
  std::size_t edge_bytes = 4096;         ///< length of the longest edge of an unaligned read
  bool may_buffer = true;                ///< a file may leave direct I/O when a read says EINVAL
};

/// Reads pieces through io_uring with registered files and registered staging memory.
///
/// The ring belongs to the thread that started the reads in flight; with none in flight another
/// thread may take over.
class uring_reader final : public piece_reader {
 public:
  /// Nothing, and the reason, when the kernel gives no ring.
  [[nodiscard]] static std::unique_ptr<uring_reader> try_make(std::deque<model_file>& files,
                                                              uring_limits limits,
                                                              std::string& why_not) {
    std::unique_ptr<uring_reader> made{new uring_reader{files, limits}};
    int const code = made->open_ring();
    if (code == 0) { return made; }
    why_not = "io_uring: " + shim::errno_text(code);
    if (code == EPERM) { why_not += ", forbidden by a sandbox or kernel.io_uring_disabled"; }
    return nullptr;
  }

  void start(batch& work, std::vector<piece> pieces) override {
    take_over();
    if (!ring_) {
      work.failure = {
          pieces.front().file, pieces.front().offset, pieces.front().wanted, ring_error_};
      return;
    }
    pending_.insert(pending_.end(), pieces.begin(), pieces.end());
    work.pieces_left = pieces.size();
    fill();
    enter(false);
  }

  bool poll(batch const& work) noexcept override {
    if (work.pieces_left != 0 && ring_ && owner_ == std::this_thread::get_id()) {
      fill();
      enter(false);
      reap();
    }
    return work.pieces_left == 0;
  }

  void finish(batch const& work) override {
    while (work.pieces_left != 0) {
      if (owner_ != std::this_thread::get_id()) {
        throw contract_error{
            "nvme: a ticket was waited for by another thread than the one that started it, while "
            "its read was in "
            "flight; wait for it there first"};
      }
      fill();
      if (!reap() && work.pieces_left != 0) { enter(true); }
    }
  }

  [[nodiscard]] std::string mode() const override {
    std::string text = "io_uring (" + std::string{ring_ ? ring_->mode() : "closed"} + ")";
    text += files_registered_ ? ", registered files" : ", files not registered";
    text += buffers_ != buffer_table::none ? ", registered buffers" : ", buffers not registered";
    if (!why_unregistered_.empty()) { text += " (" + why_unregistered_ + ")"; }
    return text + ", depth " + std::to_string(limits_.queue_depth);
  }
  [[nodiscard]] std::size_t staging_bytes() const noexcept override { return staging_.size(); }

  bool register_region(std::span<std::byte> range) override {
    take_over();
    if (!ring_ || buffers_ != buffer_table::sparse) { return false; }
    constexpr std::size_t longest = gib;  // the kernel's limit for one buffer
    std::size_t const first = regions_.size();
    for (std::size_t at = 0; at < range.size(); at += longest) {
      region const part{range.subspan(at, std::min(longest, range.size() - at)), free_buffer()};
      if (part.slot == 0 || ring_->set_buffer(part.slot, part.bytes) != 0) {
        while (regions_.size() > first) { drop_region(regions_.size() - 1); }
        return false;
      }
      regions_.push_back(part);
    }
    return true;
  }
  void forget_region(std::span<std::byte> range) noexcept override {
    if (owner_ != std::this_thread::get_id() && in_flight_ == 0) { open_ring(); }
    for (std::size_t i = regions_.size(); i-- > 0;) {
      auto const* const at = regions_[i].bytes.data();
      if (at >= range.data() && at < range.data() + range.size()) { drop_region(i); }
    }
  }

 private:
  enum class buffer_table : unsigned char { none, staging_only, sparse };
  struct region {
    std::span<std::byte> bytes;
    unsigned slot = 0;  ///< 0 is the staging memory
  };
  /// A request under way; its index is the tag.
  struct request {
    piece part;
    std::byte* bounce = nullptr;
  };

  uring_reader(std::deque<model_file>& files, uring_limits limits)
      : files_{files}, limits_{limits} {
    std::size_t const edges = limits_.queue_depth * limits_.edge_bytes;
    std::size_t const room = limits_.staging_bytes - std::min(limits_.staging_bytes, edges);
    std::size_t const slots =
        std::clamp<std::size_t>(room / limits_.piece_bytes, 1, limits_.queue_depth);
    staging_ = shim::anonymous_memory{slots * limits_.piece_bytes + edges};
    std::byte* at = staging_.data();
    for (std::size_t i = 0; i < slots; ++i, at += limits_.piece_bytes) { large_.push_back(at); }
    first_edge_ = at;
    for (std::size_t i = 0; i < limits_.queue_depth; ++i, at += limits_.edge_bytes) {
      small_.push_back(at);
      free_tags_.push_back(static_cast<std::uint32_t>(i));
    }
    requests_.resize(limits_.queue_depth);
  }

  /// 0 or an errno value.
  int open_ring() noexcept {
    ring_.reset();
    ring_ = shim::io_ring::try_open(static_cast<unsigned>(limits_.queue_depth), ring_error_);
    owner_ = std::this_thread::get_id();
    if (!ring_) { return ring_error_; }
    std::vector<int> fds;
    for (auto const& file : files_) { fds.push_back(file.fd()); }
    int const files_code = fds.empty() ? 0 : ring_->register_files(fds);
    files_registered_ = files_code == 0;
    int buffers_code = ring_->reserve_buffers();
    buffers_ = buffer_table::sparse;
    if (buffers_code == 0) {
      buffers_code = ring_->set_buffer(0, staging_.bytes());
    } else {
      buffers_ = buffer_table::staging_only;
      buffers_code = ring_->register_only_buffer(staging_.bytes());
    }
    if (buffers_code != 0) { buffers_ = buffer_table::none; }
    int const code = files_code != 0 ? files_code : buffers_code;
    why_unregistered_ = code == 0 ? "" : shim::errno_text(code);
    if (code == ENOMEM) { why_unregistered_ += ", raise ulimit -l"; }
    for (std::size_t i = regions_.size(); i-- > 0;) {
      if (buffers_ != buffer_table::sparse ||
          ring_->set_buffer(regions_[i].slot, regions_[i].bytes) != 0) {
        regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return 0;
  }

  /// The kernel ties the ring to one thread; an idle ring is made again for the thread that wants
  /// it.
  void take_over() {
    if (owner_ == std::this_thread::get_id()) { return; }
    if (in_flight_ != 0 || !pending_.empty()) {
      throw contract_error{
          "nvme: used by another thread while reads are in flight; wait for its tickets first"};
    }
    open_ring();
  }

  [[nodiscard]] unsigned free_buffer() const noexcept {
    for (unsigned slot = 1; slot < shim::io_ring::buffer_slots; ++slot) {
      if (std::none_of(
              regions_.begin(), regions_.end(), [&](region const& r) { return r.slot == slot; })) {
        return slot;
      }
    }
    return 0;
  }
  void drop_region(std::size_t index) noexcept {
    if (ring_) { static_cast<void>(ring_->set_buffer(regions_[index].slot, {})); }
    regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  [[nodiscard]] int buffer_of(std::byte const* to, std::size_t bytes) const noexcept {
    for (auto const& [range, slot] : regions_) {
      if (to >= range.data() && to + bytes <= range.data() + range.size()) {
        return static_cast<int>(slot);
      }
    }
    return shim::unregistered;
  }

  [[nodiscard]] std::vector<std::byte*>& slots_for(std::uint32_t length) noexcept {
    return length <= limits_.edge_bytes && !small_.empty() ? small_ : large_;
  }
  void give_slot_back(std::byte* slot) noexcept {
    if (slot != nullptr) { (slot >= first_edge_ ? small_ : large_).push_back(slot); }
  }

  /// Prepares requests while there are pieces, tags and staging slots.
  void fill() noexcept {
    while (!pending_.empty() && !free_tags_.empty()) {
      piece const& next = pending_.front();
      if (next.owner->failure) {
        --next.owner->pieces_left;
        pending_.pop_front();
        continue;
      }
      std::byte* bounce = nullptr;
      if (next.bounced) {
        auto& slots = slots_for(next.length);
        if (slots.empty()) { return; }
        bounce = slots.back();
        slots.pop_back();
      }
      std::uint32_t const tag = free_tags_.back();
      free_tags_.pop_back();
      requests_[tag] = {next, bounce};
      pending_.pop_front();
      ++in_flight_;
      prepare(tag);
    }
  }

  void prepare(std::uint32_t tag) noexcept {
    auto const& [part, bounce] = requests_[tag];
    std::byte* const to = (bounce != nullptr ? bounce : part.to) + part.done;
    std::uint32_t const bytes = part.length - part.done;
    int buffer = shim::unregistered;
    if (bounce != nullptr) {
      if (buffers_ != buffer_table::none) { buffer = 0; }
    } else {
      buffer = buffer_of(to, bytes);
    }
    int const file = files_registered_ ? static_cast<int>(part.file) : files_[part.file].fd();
    // Never full: the ring has an entry for every tag.
    static_cast<void>(
        ring_->prepare({file, to, bytes, part.offset + part.done, tag, buffer}, files_registered_));
  }

  /// Submits what is prepared; with `wait` blocks for one completion.
  void enter(bool wait) noexcept {
    if (!ring_ || in_flight_ == 0) { return; }
    copied_ = 0;
    int const code = ring_->submit(wait);
    if (code == 0 || code == EINTR) {
      refusals_ = 0;
    } else if ((code == EAGAIN || code == EBUSY) && ++refusals_ < most_refusals) {
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    } else {
      give_up(code);
    }
  }

  /// Handles every completion that is there; true if there was one.
  bool reap() noexcept {
    bool any = false;
    while (ring_) {
      auto const done = ring_->next();
      if (!done) { break; }
      any = true;
      complete(static_cast<std::uint32_t>(done->tag), done->result);
      fill();
      // The drive must not run dry while the processor copies.
      if (copied_ >= 256 * kib) { enter(false); }
    }
    return any;
  }

  void complete(std::uint32_t tag, int result) noexcept {
    auto& [part, bounce] = requests_[tag];
    verdict const next = judge(part, files_[part.file], limits_.may_buffer, result);
    if (next == verdict::again && !part.owner->failure) {
      prepare(tag);
      return;
    }
    if (next == verdict::finished && bounce != nullptr) {
      auto const& copier = part.owner->copier;
      copier.copy(copier.context, part.to, bounce + part.skip, part.wanted);
      copied_ += part.wanted;
    }
    release(tag);
  }

  void release(std::uint32_t tag) noexcept {
    auto& [part, bounce] = requests_[tag];
    give_slot_back(std::exchange(bounce, nullptr));
    --std::exchange(part.owner, nullptr)->pieces_left;
    free_tags_.push_back(tag);
    --in_flight_;
  }

  /// The ring itself failed: nothing more comes out of it, so every read ends with its error.
  void give_up(int code) noexcept {
    ring_->close();
    ring_.reset();
    ring_error_ = code;
    auto fail = [&](piece const& part) {
      if (!part.owner->failure) {
        part.owner->failure = {part.file, part.offset, part.wanted, code};
      }
    };
    for (std::uint32_t tag = 0; tag < requests_.size(); ++tag) {
      if (requests_[tag].part.owner != nullptr) {
        fail(requests_[tag].part);
        release(tag);
      }
    }
    for (auto const& part : std::exchange(pending_, {})) {
      fail(part);
      --part.owner->pieces_left;
    }
  }

  static constexpr int most_refusals = 100'000;

  std::deque<model_file>& files_;
  uring_limits limits_;
  shim::anonymous_memory staging_;
  std::byte* first_edge_ = nullptr;
  std::vector<std::byte*> large_;
  std::vector<std::byte*> small_;
  std::vector<std::uint32_t> free_tags_;
  std::vector<request> requests_;
  std::deque<piece> pending_;
  std::vector<region> regions_;
  std::size_t in_flight_ = 0;
  std::size_t copied_ = 0;
  int refusals_ = 0;
  int ring_error_ = 0;
  bool files_registered_ = false;
  buffer_table buffers_ = buffer_table::none;
  std::string why_unregistered_;
  std::thread::id owner_;
  std::optional<shim::io_ring> ring_;  // last: closed before the memory it may still name
};

}  // namespace terrace::tier::detail

#endif
