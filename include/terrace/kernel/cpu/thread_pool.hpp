// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/detail/intrinsics.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace terrace::kernel::cpu {

/// A fixed team of threads that runs one function at a time, for loops of microseconds.
///
/// Ordering: `run` returns after every thread has returned from the function; what they wrote is visible then.
/// Errors:   the constructor throws contract_error below one thread and io_error when a thread cannot start.
/// Cost:     a few hundred nanoseconds per `run` while the team is hot; after a while without work it sleeps.
class thread_pool {
 public:
  /// Starts `threads - 1` workers; the caller of `run` is thread 0.
  explicit thread_pool(int threads) {
    if (threads < 1) {
      throw contract_error{"a thread pool of " + std::to_string(threads) +
                           " threads was asked for; at least 1 is needed"};
    }
    unsigned const processors = std::thread::hardware_concurrency();
    spins_ = processors == 0 || static_cast<unsigned>(threads) <= processors ? hot_spins : 0;
    failures_.resize(static_cast<std::size_t>(threads));
    scratch_.resize(static_cast<std::size_t>(threads) + 1);
    workers_.reserve(static_cast<std::size_t>(threads) - 1);
    try {
      for (int thread = 1; thread < threads; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
      }
    } catch (std::system_error const& failure) {
      stop();
      throw io_error{"thread " + std::to_string(workers_.size() + 1) + " of " +
                         std::to_string(threads) + " could not start: " + failure.what() +
                         "; ask for fewer threads",
                     failure.code().value()};
    }
  }
  thread_pool(thread_pool const&) = delete;
  thread_pool& operator=(thread_pool const&) = delete;
  ~thread_pool() { stop(); }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(failures_.size()); }

  /// At least `bytes` of memory for `thread`, aligned to 64 bytes, kept until that thread asks
  /// again. Only that thread may call this; it exists so that kernels neither allocate nor fault
  /// pages in on every call.
  [[nodiscard]] std::byte* scratch(int thread, std::size_t bytes) {
    return reserve(scratch_[static_cast<std::size_t>(thread)], bytes);
  }
  /// The same for memory that all threads use during one `run`; asked for by the caller before it.
  [[nodiscard]] std::byte* shared_scratch(std::size_t bytes) {
    return reserve(scratch_.back(), bytes);
  }

  /// Calls `f(thread)` once on every thread, thread 0 being the caller. Not reentrant: `f` must not
  /// use the pool. When calls throw, the exception of the lowest thread is rethrown after all have
  /// returned.
  template <class F>
  void run(F&& f) {
    if (workers_.empty()) {
      f(0);
      return;
    }
    job_context_ = const_cast<void*>(static_cast<void const*>(std::addressof(f)));
    job_ = [](void* context, int thread) {
      (*static_cast<std::remove_reference_t<F>*>(context))(thread);
    };
    pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      caller_processor_.store(current_processor(), std::memory_order_relaxed);
      epoch_.notify_all();
    }
    call(0);
    wait_until([this] { return pending_.load(std::memory_order_acquire) == 0; }, pending_);
    rethrow_first();
  }

  /// Splits [0, n) into one contiguous range per thread, cut at multiples of `grain`, and calls
  /// `f(begin, end)` for each range that is not empty. The split depends on n, grain and size()
  /// only. At most one grain runs inline.
  template <class F>
  void for_range(std::size_t n, std::size_t grain, F&& f) {
    if (n == 0) { return; }
    std::size_t const step = std::max<std::size_t>(grain, 1);
    std::size_t const grains = (n + step - 1) / step;
    if (grains == 1 || workers_.empty()) {
      f(std::size_t{0}, n);
      return;
    }
    auto const threads = static_cast<std::size_t>(size());
    run([&](int thread) {
      auto const t = static_cast<std::size_t>(thread);
      std::size_t const begin = grains * t / threads * step;
      std::size_t const end = std::min(n, grains * (t + 1) / threads * step);
      if (begin < end) { f(begin, end); }
    });
  }

 private:
  struct alignas(64) cache_line {
    std::byte bytes[64];
  };
  static std::byte* reserve(std::vector<cache_line>& buffer, std::size_t bytes) {
    std::size_t const lines = (bytes + sizeof(cache_line) - 1) / sizeof(cache_line);
    if (buffer.size() < lines) { buffer.resize(std::max(lines, 2 * buffer.size())); }
    return reinterpret_cast<std::byte*>(buffer.data());
  }
  static constexpr int hot_spins =
      4000;  // about 0.2 ms, longer than the gap between two loops of one token

  static constexpr int patient_turns = 100000;  // some tens of milliseconds of giving way

  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#endif
  }

  [[nodiscard]] static int current_processor() noexcept {
#if defined(__linux__)
    return ::sched_getcpu();
#else
    return -1;
#endif
  }

  /// Puts a thread that just woke on a processor of its own, counted on from the caller's, and lets
  /// the scheduler move it from there. Where processors show no shared cache, as in many virtual
  /// machines, a thread wakes on its waker's processor, and the two share it for milliseconds.
  void move_off_caller([[maybe_unused]] int thread) const noexcept {
#if defined(__linux__)
    int const caller = caller_processor_.load(std::memory_order_relaxed);
    cpu_set_t allowed;
    if (caller < 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) { return; }
    if (CPU_COUNT(&allowed) < size()) { return; }
    int target = caller;
    for (int left = thread; left > 0;) {
      target = (target + 1) % CPU_SETSIZE;
      if (CPU_ISSET(target, &allowed)) { --left; }
    }
    if (target == ::sched_getcpu()) { return; }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(target, &one);
    if (::sched_setaffinity(0, sizeof one, &one) == 0) {
      static_cast<void>(::sched_setaffinity(0, sizeof allowed, &allowed));
    }
#endif
  }

  void call(int thread) noexcept {
    try {
      job_(job_context_, thread);
    } catch (...) { failures_[static_cast<std::size_t>(thread)] = std::current_exception(); }
  }

  void rethrow_first() {
    std::exception_ptr first;
    for (auto& failure : failures_) {
      if (failure && !first) { first = failure; }
      failure = nullptr;
    }
    if (first) { std::rethrow_exception(first); }
  }

  /// Spins, then gives way to others, then sleeps on `changed` until `done()`. A caller that slept
  /// would wake on the processor of the worker that ends last, and share it with that worker.
  template <class Done, class T>
  void wait_until(Done&& done, std::atomic<T>& changed) const {
    for (int spin = 0; spin < spins_; ++spin) {
      if (done()) { return; }
      pause();
    }
    for (int turn = 0; turn < patient_turns && spins_ > 0; ++turn) {
      if (done()) { return; }
      std::this_thread::yield();
    }
    for (;;) {
      T const seen = changed.load(std::memory_order_seq_cst);
      if (done()) { return; }
      changed.wait(seen, std::memory_order_seq_cst);
    }
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      auto const changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      bool hot = false;
      for (int spin = 0; spin < spins_ && !hot; ++spin) {
        hot = changed();
        if (!hot) { pause(); }
      }
      if (!hot) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (!changed()) { epoch_.wait(seen, std::memory_order_seq_cst); }
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
        move_off_caller(thread);
      }
      ++seen;
      if (stopping_.load(std::memory_order_relaxed)) { return; }
      call(thread);
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) { pending_.notify_one(); }
    }
  }

  void stop() noexcept {
    stopping_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    epoch_.notify_all();
    for (auto& worker : workers_) { worker.join(); }
  }

  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> caller_processor_{-1};
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) std::atomic<bool> stopping_{false};
  void (*job_)(void*, int) = nullptr;
  void* job_context_ = nullptr;
  int spins_ = 0;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::vector<cache_line>> scratch_;  // one a thread, then the shared one
  std::vector<std::thread> workers_;
};

}  // namespace terrace::kernel::cpu
