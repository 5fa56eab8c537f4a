// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace terrace {

/// One asynchronous operation; ends exactly once, well or with an exception.
///
/// Ordering: buffers named by the operation must outlive its ticket; destroying a ticket waits.
/// Errors:   `wait` rethrows what went wrong, once; a destructor swallows it.
class [[nodiscard]] ticket {
 public:
  /// What an engine (io_uring, a pread pool, a copy engine) implements for its operations.
  class operation {
   public:
    virtual ~operation() = default;
    /// Makes progress without blocking; true once the operation has ended.
    virtual bool ready() noexcept = 0;
    /// Blocks until the operation has ended; throws its error.
    virtual void wait() = 0;
  };

  /// A ticket for work that is already done.
  ticket() = default;
  explicit ticket(std::unique_ptr<operation> work) noexcept : work_{std::move(work)} {}
  ticket(ticket&&) noexcept = default;
  ticket& operator=(ticket&& other) noexcept {
    if (this != &other) {
      finish();
      work_ = std::move(other.work_);
    }
    return *this;
  }
  ~ticket() { finish(); }

  /// Never blocks.
  [[nodiscard]] bool ready() const noexcept { return work_ == nullptr || work_->ready(); }
  /// Blocks; rethrows the operation's error.
  void wait() {
    if (auto work = std::exchange(work_, nullptr)) { work->wait(); }
  }

 private:
  void finish() noexcept {
    try {
      wait();
    } catch (...) {  // a destructor does not report; whoever cares calls wait()
    }
  }
  std::unique_ptr<operation> work_;
};

}  // namespace terrace
