// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_files.hpp"
#include "random_values.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::synth {
namespace detail {

/// A file under a temporary name, until `publish` gives it its own; removed before that.
class partial_file {
 public:
  /// Errors: io_error when it cannot be made.
  partial_file(std::filesystem::path path, std::uint64_t bytes)
      : path_{std::move(path)}, partial_{std::filesystem::path{path_} += ".partial"} {
    file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) { fail(errno); }
    if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
      int const code = errno;
      clear();
      fail(code);
    }
  }
  partial_file(partial_file const&) = delete;
  partial_file& operator=(partial_file const&) = delete;
  ~partial_file() { clear(); }

  /// From any thread.
  void write(std::uint64_t at, std::span<std::byte const> bytes) const {
    while (!bytes.empty()) {
      ssize_t const put = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (put < 0 && errno == EINTR) { continue; }
      if (put <= 0) { fail(put < 0 ? errno : ENOSPC); }
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      at += static_cast<std::uint64_t>(put);
    }
  }
  /// Errors: io_error when the system could not keep what was written.
  void close() {
    int const closed = ::close(std::exchange(file_, -1));
    if (closed != 0) { fail(errno); }
  }
  void publish() {
    std::error_code code;
    std::filesystem::rename(partial_, path_, code);
    if (code) { fail(code.value()); }
    partial_.clear();
  }

 private:
  [[noreturn]] void fail(int code) const {
    throw io_error{path_.string() + ": cannot be written (" + std::strerror(code) +
                       "); check the folder, its permissions and the free space",
                   code};
  }
  void clear() noexcept {
    if (file_ >= 0) { ::close(file_); }
    std::error_code ignored;
    if (!partial_.empty()) { std::filesystem::remove(partial_, ignored); }
  }

  std::filesystem::path path_;
  std::filesystem::path partial_;  ///< empty once published
  int file_ = -1;
};

/// Fills files with tensors, a chunk at a time, from several threads.
class chunk_writer {
 public:
  chunk_writer(planned_model const& model, std::uint64_t seed) : model_{model} {
    for (std::size_t file = 0; file < model.files.size(); ++file) {
      for (std::size_t i = 0; i < model.files[file].offsets.size(); ++i) {
        stored_tensor const& tensor = model.tensors[model.files[file].first + i];
        jobs_.push_back(
            {file, &tensor, model.files[file].offsets[i], key_of(seed, tensor.name), chunks_});
        std::uint64_t const chunk = tensor.data.chunk_bytes();
        chunks_ += (tensor.bytes + chunk - 1) / chunk;
      }
    }
  }

  /// Errors: the first of any thread.
  void run(std::vector<std::unique_ptr<partial_file>> const& files,
           int threads,
           std::function<void(std::uint64_t)> const& on_bytes) {
    std::vector<std::thread> workers;
    std::atomic<int> working{threads};
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        try {
          work(files);
        } catch (...) {
          std::scoped_lock const hold{mutex_};
          if (!failed_) { failed_ = std::current_exception(); }
          stop_ = true;
        }
        --working;
      });
    }
    while (working > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      on_bytes(written_);
    }
    for (std::thread& worker : workers) { worker.join(); }
    if (failed_) { std::rethrow_exception(failed_); }
  }

 private:
  struct job {
    std::size_t file;
    stored_tensor const* tensor;
    std::uint64_t offset;
    std::uint64_t key;
    std::uint64_t first_chunk;  ///< among those of all tensors
  };

  void work(std::vector<std::unique_ptr<partial_file>> const& files) {
    std::vector<std::byte> buffer;
    while (!stop_) {
      std::uint64_t const number = next_++;
      if (number >= chunks_) { return; }
      auto const after = std::upper_bound(
          jobs_.begin(), jobs_.end(), number, [](std::uint64_t value, job const& one) {
            return value < one.first_chunk;
          });
      job const& mine = *std::prev(after);
      std::uint64_t const chunk = number - mine.first_chunk;
      std::uint64_t const size = mine.tensor->data.chunk_bytes();
      buffer.resize(std::min(size, mine.tensor->bytes - chunk * size));
      mine.tensor->data.fill(mine.key, chunk, buffer);
      files[mine.file]->write(mine.offset + chunk * size, buffer);
      written_ += buffer.size();
    }
  }

  planned_model const& model_;
  std::vector<job> jobs_;
  std::uint64_t chunks_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> written_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr failed_;
};

/// Errors: io_error when `folder` has not room for `bytes`.
inline void require_room(std::filesystem::path const& folder, std::uint64_t bytes) {
  std::error_code code;
  auto const room = std::filesystem::space(folder, code);
  if (!code && room.available < bytes) {
    throw io_error{folder.string() + ": has " + format_size(room.available) +
                       " free where the model needs " + format_size(bytes) +
                       "; give fewer layers or experts, smaller types or another folder",
                   ENOSPC};
  }
}

}  // namespace detail

/// Writes the files of a model into `folder`, under temporary names until all are complete: then
/// they appear one after the other. `on_bytes` hears how many bytes of weights are written.
///
/// Errors: io_error when there is no room or writing fails; nothing is left behind then.
/// Cost:   each byte is made and written once; memory for a chunk of about 1 MiB for each thread.
inline void write_model(planned_model const& model,
                        std::filesystem::path const& folder,
                        std::uint64_t seed,
                        int threads,
                        std::function<void(std::uint64_t)> const& on_bytes) {
  detail::require_room(folder, model.bytes());
  std::vector<std::unique_ptr<detail::partial_file>> files;
  for (planned_file const& file : model.files) {
    files.push_back(std::make_unique<detail::partial_file>(folder / file.name, file.bytes));
    files.back()->write(0, std::as_bytes(std::span{file.head}));
  }
  detail::chunk_writer{model, seed}.run(files, threads, on_bytes);
  for (auto const& file : files) { file->close(); }
  for (auto const& file : files) { file->publish(); }
}

}  // namespace terrace::synth
