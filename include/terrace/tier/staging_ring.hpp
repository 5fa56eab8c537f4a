// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ticket.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Some bytes of a staged copy: where they are in the staging memory and where the other end of the
/// copy has them.
struct staged_part {
  std::byte* staged = nullptr;
  std::byte* block = nullptr;
  std::size_t bytes = 0;
};

/// A copy that goes through staging memory, a slot at a time.
class staged_copy {
 public:
  virtual ~staged_copy() = default;

  /// Whether every byte has been brought into some slot.
  [[nodiscard]] virtual bool exhausted() const noexcept = 0;
  /// Starts bringing the next bytes into `slot` and says in `parts`, which is empty, what they are.
  /// After an exception no one writes to the slot any more.
  [[nodiscard]] virtual ticket bring(std::span<std::byte> slot,
                                     std::vector<staged_part>& parts) = 0;
  /// Starts moving what was brought to where it belongs. After an exception no one reads the slot
  /// any more.
  [[nodiscard]] virtual ticket move_on(std::span<staged_part const> parts) = 0;

 protected:
  staged_copy() = default;
  staged_copy(staged_copy const&) = default;
  staged_copy& operator=(staged_copy const&) = default;
};

/// A bounded ring of staging memory that copies share, in the order they were started: while one
/// slot is filled others are emptied, so both ends of the way are busy.
///
/// Nothing here blocks but `wait` of a ticket. What is beyond the ring starts as slots become free,
/// whenever any ticket of the ring is polled or waited for. One thread at a time.
class staging_ring {
 public:
  /// `memory` is borrowed and must outlive the ring's tickets; `slot_bytes` divides it.
  staging_ring(std::span<std::byte> memory, std::size_t slot_bytes)
      : engine_{std::make_shared<engine>(memory, slot_bytes)} {}

  /// Starts as much of the copy as free slots allow.
  /// Errors: what `bring` and `move_on` throw, from the ticket.
  [[nodiscard]] ticket start(std::unique_ptr<staged_copy> work) {
    auto started = std::make_unique<operation>(engine_, std::move(work));
    started->begin();
    return ticket{std::move(started)};
  }

 private:
  /// A copy and what is under way of it.
  struct job {
    std::unique_ptr<staged_copy> work;
    std::size_t slots = 0;
    std::exception_ptr failure{};  ///< the first; nothing more is brought after it

    [[nodiscard]] bool all_brought() const noexcept { return failure || work->exhausted(); }
    [[nodiscard]] bool over() const noexcept { return slots == 0 && all_brought(); }
  };
  struct slot {
    std::span<std::byte> memory{};
    std::vector<staged_part> parts{};
    job* owner = nullptr;
    bool moving_on = false;
    ticket step{};
  };

  class engine {
   public:
    engine(std::span<std::byte> memory, std::size_t slot_bytes)
        : slots_(memory.size() / slot_bytes) {
      busy_.reserve(slots_.size());
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].memory = memory.subspan(i * slot_bytes, slot_bytes);
        free_.push_back(&slots_[i]);
      }
    }

    void add(job& one) {
      waiting_.push_back(&one);
      pump();
    }
    void forget(job const& one) noexcept { std::erase(waiting_, &one); }
    /// Does what can be done without waiting.
    void pump() {
      for (std::size_t i = 0; i < busy_.size();) {
        if (!busy_[i]->step.ready()) {
          ++i;
        } else if (!advance(*busy_[i])) {
          busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      fill();
    }
    void finish(job const& one) {
      for (pump(); !one.over(); pump()) {
        auto const own = std::find_if(
            busy_.begin(), busy_.end(), [&](slot const* taken) { return taken->owner == &one; });
        auto const next = own != busy_.end() ? own : busy_.begin();
        if (!advance(**next)) { busy_.erase(next); }
      }
    }

   private:
    void fill() {
      while (!free_.empty() && !waiting_.empty()) {
        job& next = *waiting_.front();
        if (next.all_brought()) {
          waiting_.pop_front();
          continue;
        }
        slot& one = *free_.back();
        try {
          one.step = next.work->bring(one.memory, one.parts);
        } catch (...) {
          next.failure = std::current_exception();
          one.parts.clear();
          continue;
        }
        free_.pop_back();
        one.owner = &next;
        ++next.slots;
        if (!one.step.ready() || advance(one)) { busy_.push_back(&one); }
      }
    }

    /// Ends the slot's step, waiting for it, and starts the next one; false when the slot is free.
    bool advance(slot& one) {
      job& owner = *one.owner;
      try {
        one.step.wait();
        if (!one.moving_on && !owner.failure) {
          one.step = owner.work->move_on(one.parts);
          one.moving_on = true;
          return true;
        }
      } catch (...) {
        if (!owner.failure) { owner.failure = std::current_exception(); }
      }
      one.owner = nullptr;
      one.moving_on = false;
      one.parts.clear();
      --owner.slots;
      free_.push_back(&one);
      return false;
    }

    std::vector<slot> slots_;
    std::vector<slot*> free_;
    std::vector<slot*> busy_;  ///< oldest first
    std::deque<job*> waiting_;
  };

  class operation final : public ticket::operation {
   public:
    operation(std::shared_ptr<engine> ring, std::unique_ptr<staged_copy> work)
        : ring_{std::move(ring)}, job_{.work = std::move(work)} {}
    operation(operation const&) = delete;
    operation& operator=(operation const&) = delete;
    ~operation() override {
      ring_->finish(job_);
      ring_->forget(job_);
    }

    void begin() { ring_->add(job_); }
    bool ready() noexcept override {
      ring_->pump();
      return job_.over();
    }
    void wait() override {
      ring_->finish(job_);
      if (job_.failure) { std::rethrow_exception(job_.failure); }
    }

   private:
    std::shared_ptr<engine> ring_;
    job job_;
  };

  std::shared_ptr<engine> engine_;
};

}  // namespace terrace
