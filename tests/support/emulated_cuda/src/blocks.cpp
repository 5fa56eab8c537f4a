// SPDX-License-Identifier: Apache-2.0
// Blocks on one host thread: each thread of a block that has to wait is a fiber; one that never
// waits costs a call.
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <emulated_cuda/block.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace emulated_cuda {
namespace {

using boost::context::fiber;

constexpr std::size_t stack_bytes = std::size_t{192} << 10U;
constexpr auto spin_limit = std::chrono::seconds{60};
constexpr unsigned no_thread = ~0U;

std::string text(uint3 at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}
std::string text(std::source_location const& at) {
  return std::string{at.file_name()} + ":" + std::to_string(at.line()) + " in " +
         at.function_name();
}

/// Whoever waits for the others of its group (a warp or a block), and what the waiting ones wait
/// in.
struct meeting {
  char const* operation = nullptr;
  std::source_location where;
  unsigned arrived = 0;
  unsigned generation = 0;
  std::vector<std::size_t> waiting;  ///< fibers

  [[nodiscard]] bool same_place(std::source_location const& at) const {
    return where.line() == at.line() && where.column() == at.column() &&
           std::string_view{where.file_name()} == at.file_name();
  }
};

struct warp {
  meeting lanes;
  unsigned size = 32;
  exchange_slot slots[2][32];
};

enum class wait_reason : unsigned char { none, group, spin };

struct fiber_state {
  fiber context;    ///< where the fiber goes on
  fiber scheduler;  ///< where whoever resumed it goes on
  unsigned thread = no_thread;
  wait_reason reason = wait_reason::none;
  std::source_location where;
  char const* operation = nullptr;
};

struct pending_copy {
  void* to;
  void const* from;
  std::size_t bytes;
};
struct thread_copies {
  std::vector<pending_copy> open;
  std::deque<std::vector<pending_copy>> groups;
};

class block_runner {
 public:
  void run(launch_dimensions const& shape, std::function<void()> const& body) {
    body_ = &body;
    gridDim = shape.grid;
    blockDim = shape.block;
    threads_ = shape.block.x * shape.block.y * shape.block.z;
    reserve_shared(shape.shared_bytes);
    warps_.resize((threads_ + 31) / 32);
    for (unsigned z = 0; z < shape.grid.z; ++z) {
      for (unsigned y = 0; y < shape.grid.y; ++y) {
        for (unsigned x = 0; x < shape.grid.x; ++x) { run_block({x, y, z}); }
      }
    }
  }

  [[nodiscard]] std::byte* shared() const { return shared_.get(); }
  [[nodiscard]] std::size_t shared_bytes() const { return shared_bytes_; }
  [[nodiscard]] unsigned thread() const { return fibers_[current_]->thread; }
  [[nodiscard]] bool inside() const { return running_; }

  void barrier(std::source_location const& where) {
    if (block_.arrived > 0 && !block_.same_place(where)) {
      fail_here("reached __syncthreads while others wait at " + text(block_.where), where);
    }
    meet(block_, threads_, "__syncthreads", where);
  }

  exchange_view exchange(char const* operation,
                         std::uint32_t mask,
                         void const* value,
                         std::size_t bytes,
                         std::source_location const& where) {
    warp& mine = warps_[thread() / 32];
    unsigned const lane = thread() % 32;
    std::uint32_t const present = mine.size == 32 ? ~0U : (1U << mine.size) - 1;
    if ((mask & present) != present) {
      fail_here(
          std::string{operation} + " with a mask that leaves lanes out, which is not emulated",
          where);
    }
    if (mine.lanes.arrived > 0 && std::string_view{mine.lanes.operation} != operation) {
      fail_here(std::string{operation} + " while lanes of its warp wait in " +
                    mine.lanes.operation + " at " + text(mine.lanes.where),
                where);
    }
    unsigned const turn = mine.lanes.generation % 2;
    if (bytes > slot_bytes) { fail_here("exchanges more than a slot holds", where); }
    if (bytes > 0) { std::memcpy(mine.slots[turn][lane].bytes, value, bytes); }
    meet(mine.lanes, mine.size, operation, where);
    return {mine.slots[turn], present, lane};
  }

  void start_copy(void* to,
                  void const* from,
                  std::size_t bytes,
                  std::source_location const& where) {
    if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(from) % bytes != 0) {
      fail_here("copies " + std::to_string(bytes) + " bytes that are not aligned to as many",
                where);
    }
    std::memset(to, 0xFF, bytes);
    copies_of(thread()).open.push_back({to, from, bytes});
  }
  void end_copy_group() {
    thread_copies& mine = copies_of(thread());
    mine.groups.push_back(std::exchange(mine.open, {}));
  }
  void wait_for_copies(std::size_t pending_groups) {
    thread_copies& mine = copies_of(thread());
    while (mine.groups.size() > pending_groups) {
      for (auto const& [to, from, bytes] : mine.groups.front()) { std::memcpy(to, from, bytes); }
      mine.groups.pop_front();
    }
  }

  void pause() {
    fiber_state& self = *fibers_[current_];
    self.reason = wait_reason::spin;
    spinning_.push_back(current_);
    leave();
  }

  [[noreturn]] void fail_here(std::string const& what, std::source_location const& where) const {
    throw kernel_failure{"thread " + text(threadIdx) + " of block " + text(blockIdx) + " " + what +
                         " (" + text(where) + ")"};
  }

 private:
  void reserve_shared(std::size_t bytes) {
    shared_bytes_ = bytes;
    if (bytes > shared_room_) {
      shared_room_ = (bytes + 1023) / 1024 * 1024;
      shared_.reset(static_cast<std::byte*>(std::aligned_alloc(1024, shared_room_)));
    }
  }

  thread_copies& copies_of(unsigned thread) {
    if (copies_.empty()) { copies_.resize(threads_); }
    return copies_[thread];
  }

  void run_block(uint3 index) {
    blockIdx = index;
    if (shared_bytes_ > 0) { std::memset(shared_.get(), 0xFF, shared_bytes_); }
    copies_.clear();
    next_ = 0;
    finished_ = 0;
    block_ = {};
    for (unsigned i = 0; i < warps_.size(); ++i) {
      warps_[i].lanes.arrived = 0;
      warps_[i].lanes.waiting.clear();
      warps_[i].size = std::min(32U, threads_ - i * 32);
    }
    running_ = true;
    schedule();
    running_ = false;
    if (failure_) { abandon(); }
  }

  void schedule() {
    auto progress = std::chrono::steady_clock::now();
    unsigned quiet = 0;
    while (finished_ < threads_ && !failure_) {
      if (!ready_.empty()) {
        resume(take(ready_));
        quiet = 0;
      } else if (next_ < threads_) {
        if (idle_.empty()) { add_fiber(); }
        std::size_t const chosen = idle_.back();
        idle_.pop_back();
        resume(chosen);
        quiet = 0;
      } else if (!spinning_.empty()) {
        if (quiet == 0) { progress = std::chrono::steady_clock::now(); }
        if (++quiet % 64 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds{50});
          if (std::chrono::steady_clock::now() - progress > spin_limit) {
            failure_ = std::make_exception_ptr(kernel_failure{
                "block " + text(blockIdx) + " spins for a minute; nobody sets what it waits for"});
            break;
          }
        } else {
          std::this_thread::yield();
        }
        for (std::size_t n = spinning_.size(); n > 0 && !failure_; --n) { resume(take(spinning_)); }
      } else {
        failure_ = std::make_exception_ptr(kernel_failure{deadlock_text()});
      }
    }
  }

  static std::size_t take(std::deque<std::size_t>& from) {
    std::size_t const first = from.front();
    from.pop_front();
    return first;
  }

  void resume(std::size_t chosen) {
    current_ = chosen;
    fiber_state& state = *fibers_[chosen];
    if (state.thread != no_thread) { place(state.thread); }
    state.context = std::move(state.context).resume();
  }

  static void place(unsigned thread) {
    threadIdx = {
        thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
  }

  /// From inside a fiber to the scheduler.
  void leave() {
    fiber_state& self = *fibers_[current_];
    self.scheduler = std::move(self.scheduler).resume();
  }

  void meet(meeting& group,
            unsigned size,
            char const* operation,
            std::source_location const& where) {
    if (++group.arrived == size) {
      group.arrived = 0;
      ++group.generation;
      for (std::size_t const other : group.waiting) { ready_.push_back(other); }
      group.waiting.clear();
      return;
    }
    group.operation = operation;
    group.where = where;
    group.waiting.push_back(current_);
    fiber_state& self = *fibers_[current_];
    self.reason = wait_reason::group;
    self.operation = operation;
    self.where = where;
    leave();
    self.reason = wait_reason::none;
  }

  void add_fiber() {
    std::size_t const index = fibers_.size();
    fibers_.push_back(std::make_unique<fiber_state>());
    fiber_state& state = *fibers_.back();
    state.context =
        fiber{std::allocator_arg,
              boost::context::protected_fixedsize_stack{stack_bytes},
              [this, index](fiber&& scheduler) { return live(std::move(scheduler), index); }};
    idle_.push_back(index);
  }

  /// What a fiber does: takes threads that have not started as long as there are any, then waits to
  /// be of use again.
  fiber live(fiber&& scheduler, std::size_t index) {
    fiber_state& self = *fibers_[index];
    self.scheduler = std::move(scheduler);
    for (;;) {
      while (next_ < threads_ && !failure_) {
        self.thread = next_++;
        place(self.thread);
        try {
          (*body_)();
        } catch (boost::context::detail::forced_unwind const&) { throw; } catch (...) {
          failure_ = std::current_exception();
        }
        ++finished_;
        self.thread = no_thread;
      }
      idle_.push_back(index);
      self.scheduler = std::move(self.scheduler).resume();
    }
  }

  [[nodiscard]] std::string deadlock_text() const {
    for (auto const& one : fibers_) {
      if (one->thread == no_thread || one->reason != wait_reason::group) { continue; }
      uint3 const at{one->thread % blockDim.x,
                     one->thread / blockDim.x % blockDim.y,
                     one->thread / blockDim.x / blockDim.y};
      return "thread " + text(at) + " of block " + text(blockIdx) + " waits in " + one->operation +
             " (" + text(one->where) +
             "), which other threads of its group never reach: " + std::to_string(finished_) +
             " of " + std::to_string(threads_) + " threads have ended";
    }
    return "block " + text(blockIdx) + " cannot go on";
  }

  /// After a failure: unwinds what is left of the block and hands the failure on.
  void abandon() {
    ready_.clear();
    spinning_.clear();
    idle_.clear();
    fibers_.clear();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  struct free_memory {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::function<void()> const* body_ = nullptr;
  unsigned threads_ = 0;
  unsigned next_ = 0;
  unsigned finished_ = 0;
  bool running_ = false;
  std::size_t current_ = 0;
  std::exception_ptr failure_;
  meeting block_;
  std::vector<warp> warps_;
  std::vector<thread_copies> copies_;
  std::vector<std::unique_ptr<fiber_state>> fibers_;
  std::vector<std::size_t> idle_;
  std::deque<std::size_t> ready_;
  std::deque<std::size_t> spinning_;
  std::unique_ptr<std::byte, free_memory> shared_;
  std::size_t shared_bytes_ = 0;
  std::size_t shared_room_ = 0;
};

block_runner& runner() {
  static thread_local block_runner mine;
  return mine;
}

}  // namespace

void run_blocks(launch_dimensions const& shape, std::function<void()> const& thread_body) {
  runner().run(shape, thread_body);
}
std::byte* dynamic_shared_memory() { return runner().shared(); }
std::size_t dynamic_shared_bytes() { return runner().shared_bytes(); }
void pause() {
  if (runner().inside()) { runner().pause(); }
}
exchange_view exchange(char const* operation,
                       std::uint32_t mask,
                       void const* value,
                       std::size_t bytes,
                       std::source_location const& where) {
  return runner().exchange(operation, mask, value, bytes, where);
}
void fail(char const* what, std::source_location const& where) { runner().fail_here(what, where); }
void start_copy(void* to, void const* from, std::size_t bytes, std::source_location const& where) {
  runner().start_copy(to, from, bytes, where);
}
void end_copy_group() { runner().end_copy_group(); }
void wait_for_copies(std::size_t pending_groups) { runner().wait_for_copies(pending_groups); }
unsigned lane_id() { return runner().thread() % 32; }
void barrier(std::source_location const& where) { runner().barrier(where); }

}  // namespace emulated_cuda
