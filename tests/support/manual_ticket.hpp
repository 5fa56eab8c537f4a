// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/ticket.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace terrace::test {

/// An operation that ends when the test says so.
///
/// Waiting for one that has not ended would hang a single-threaded test, so `wait` throws
/// contract_error instead, unless `when_waited` ends it.
class manual_ticket {
 public:
  manual_ticket() : state_{std::make_shared<state>()} {}

  [[nodiscard]] ticket get() const { return ticket{std::make_unique<operation>(state_)}; }
  void complete() { state_->ended = true; }
  void fail(std::exception_ptr why) {
    state_->ended = true;
    state_->error = std::move(why);
  }
  void when_waited(std::function<void()> then) { state_->when_waited = std::move(then); }

 private:
  struct state {
    bool ended = false;
    std::exception_ptr error;
    std::function<void()> when_waited;
  };
  class operation final : public ticket::operation {
   public:
    explicit operation(std::shared_ptr<state> shared) : state_{std::move(shared)} {}
    bool ready() noexcept override { return state_->ended; }
    void wait() override {
      if (!state_->ended && state_->when_waited) { state_->when_waited(); }
      if (!state_->ended) {
        throw contract_error{"the test waits for an operation that nothing will end"};
      }
      if (state_->error) { std::rethrow_exception(state_->error); }
    }

   private:
    std::shared_ptr<state> state_;
  };

  std::shared_ptr<state> state_;
};

}  // namespace terrace::test
