// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/detail/read_plan.hpp>

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace::tier::detail {

/// Reads pieces with a pool of threads that call pread: the rung that works everywhere.
class pread_reader final : public piece_reader {
 public:
  /// `piece_bytes` is the longest piece; each thread holds that much staging memory.
  pread_reader(std::deque<model_file>& files,
               std::size_t threads,
               std::size_t piece_bytes,
               bool may_buffer)
      : files_{files}, may_buffer_{may_buffer}, staging_{threads * piece_bytes} {
    try {
      for (std::size_t i = 0; i < threads; ++i) {
        workers_.emplace_back(
            [this, bounce = staging_.data() + i * piece_bytes] { work_with(bounce); });
      }
    } catch (std::system_error const&) {  // a process limit; fewer threads do the same work
      if (workers_.empty()) {
        throw io_error{"nvme: the system refuses to start a reading thread", EAGAIN};
      }
    }
  }
  pread_reader(pread_reader const&) = delete;
  pread_reader& operator=(pread_reader const&) = delete;
  ~pread_reader() override {
    {
      std::lock_guard const lock{mutex_};
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) { worker.join(); }
  }

  void start(batch& work, std::vector<piece> pieces) override {
    {
      std::lock_guard const lock{mutex_};
      pending_.insert(pending_.end(), pieces.begin(), pieces.end());
      work.pieces_left = pieces.size();
    }
    wake_.notify_all();
  }
  bool poll(batch const& work) noexcept override {
    std::lock_guard const lock{mutex_};
    return work.pieces_left == 0;
  }
  void finish(batch const& work) override {
    std::unique_lock lock{mutex_};
    done_.wait(lock, [&] { return work.pieces_left == 0; });
  }

  [[nodiscard]] std::string mode() const override {
    return "pread on " + std::to_string(workers_.size()) + " threads";
  }
  [[nodiscard]] std::size_t staging_bytes() const noexcept override { return staging_.size(); }

 private:
  void work_with(std::byte* bounce) {
    std::unique_lock lock{mutex_};
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || !pending_.empty(); });
      if (pending_.empty()) { return; }
      piece part = pending_.front();
      pending_.pop_front();
      if (!part.owner->failure) { carry(part, bounce, lock); }
      if (--part.owner->pieces_left == 0) { done_.notify_all(); }
    }
  }

  /// Reads one piece with the lock released; failures are booked under it.
  void carry(piece& part, std::byte* bounce, std::unique_lock<std::mutex>& lock) {
    model_file& file = files_[part.file];
    byte_copier const copier = part.owner->copier;
    std::byte* const to = part.bounced ? bounce : part.to;
    verdict next = verdict::again;
    while (next == verdict::again) {
      lock.unlock();
      auto const got = ::pread(file.fd(),
                               to + part.done,
                               part.length - part.done,
                               static_cast<off_t>(part.offset + part.done));
      int const result = got < 0 ? -errno : static_cast<int>(got);
      lock.lock();
      next = judge(part, file, may_buffer_, result);
    }
    if (next == verdict::finished && part.bounced) {
      lock.unlock();
      copier.copy(copier.context, part.to, bounce + part.skip, part.wanted);
      lock.lock();
    }
  }

  std::deque<model_file>& files_;
  bool may_buffer_;
  shim::anonymous_memory staging_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<piece> pending_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace terrace::tier::detail
