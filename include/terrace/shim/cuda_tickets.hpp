// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/shim/cuda.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/stream_ref.hpp>
#include <terrace/core/ticket.hpp>

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace terrace::shim {

/// Tickets for what was given to the streams of one device. The events behind them are used again
/// and again; copies of a source share them, and tickets may outlive it. One thread at a time.
class ticket_source {
 public:
  explicit ticket_source(int device) : shared_{std::make_shared<shared>(device)} {}

  [[nodiscard]] int device() const noexcept { return shared_->device; }

  /// Ends when the work given to `on` so far has. `words` is called after a failure: what it
  /// answers begins the sentence.
  /// Errors: cuda_error when the event cannot be recorded.
  template <class Words>
  [[nodiscard]] ticket after(stream_ref on, Words words) const {
    auto event = shared_->take();
    record(on, event.get());
    return ticket{std::make_unique<operation<Words>>(shared_, std::move(event), std::move(words))};
  }
  /// As `store_options::work_so_far` asks for.
  [[nodiscard]] ticket after(stream_ref on) const {
    return after(on, [device = device()] {
      return "work on a stream of CUDA device " + std::to_string(device);
    });
  }

 private:
  struct shared {
    explicit shared(int number) noexcept : device{number} {}
    [[nodiscard]] unique_event take() {
      if (idle.empty()) {
        idle.reserve(++made);  // giving an event back must not fail
        return make_event(device);
      }
      auto event = std::move(idle.back());
      idle.pop_back();
      return event;
    }
    int device;
    std::size_t made = 0;
    std::vector<unique_event> idle;
  };

  template <class Words>
  class operation final : public ticket::operation {
   public:
    operation(std::shared_ptr<shared> source, unique_event event, Words words) noexcept
        : source_{std::move(source)}, event_{std::move(event)}, words_{std::move(words)} {}
    operation(operation const&) = delete;
    operation& operator=(operation const&) = delete;
    ~operation() override { source_->idle.push_back(std::move(event_)); }

    bool ready() noexcept override {
      if (cudaEventQuery(event_.get()) != cudaErrorNotReady) { return true; }
      static_cast<void>(cudaGetLastError());
      return false;
    }
    void wait() override {
      cudaError_t const code = cudaEventSynchronize(event_.get());
      if (code != cudaSuccess) { fail(code, words_()); }
    }

   private:
    std::shared_ptr<shared> source_;
    unique_event event_;
    Words words_;
  };

  std::shared_ptr<shared> shared_;
};

}  // namespace terrace::shim

#endif
