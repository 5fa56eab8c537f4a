// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/home.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/tier/detail/pread_reader.hpp>
#include <terrace/tier/detail/read_plan.hpp>
#include <terrace/tier/detail/uring_reader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

/// How model files are read. `automatic` takes the first that works; a named one is had or refused.
enum class read_engine : unsigned char {
  automatic,
  uring_direct,
  uring_buffered,
  pread_direct,
  pread_buffered
};

/// The home of a chain: model files, read as they are, at any offset.
///
/// Reads bypass the page cache where the file allows it (O_DIRECT). Where file offset and address
/// agree modulo the file's alignment, all but the edges of a read lands in place; the rest is
/// bounced through staging memory. Reads are cut into pieces; pieces beyond the queue depth start
/// as others complete, whenever any ticket of this home is polled or waited for. A file is opened
/// once; replacing it under its name changes nothing.
///
/// One thread at a time uses a home and its tickets, and another may take over while no read is in
/// flight. Tickets may outlive the home.
class nvme {
 public:
  struct options {
    read_engine engine = read_engine::automatic;
    std::size_t queue_depth = 64;          ///< pieces in flight; io_uring only
    std::size_t piece_bytes = mib;         ///< longest request to the kernel; a multiple of 4096
    std::size_t staging_bytes = 16 * mib;  ///< wanted; at least one piece and the edges are held
    std::size_t threads = 8;               ///< pread only
  };
  /// Takes bytes out of staging memory; may be called from any thread, several at once.
  using byte_copier = tier::detail::byte_copier;

  static constexpr std::string_view name = "nvme";

  /// Opens `files`; a file's index is its `file_id`.
  /// Errors: io_error when a file cannot be opened; not_supported when a named engine cannot be had; contract_error for
  ///         options out of range.
  explicit nvme(std::vector<std::filesystem::path> const& files) : nvme{files, options{}} {}
  nvme(std::vector<std::filesystem::path> const& files, options const& wanted)
      : parts_{std::make_shared<parts>()} {
    check(wanted);
    open(files, wanted);
  }

  /// Starts all reads of `work` and returns. The destinations belong to the home until the ticket
  /// ends.
  /// Errors: contract_error at once for an unknown file or no destination; the rest is an io_error from the ticket.
  ticket read(std::span<file_read const> work) { return start(work, {}, false); }

  /// The same, but every byte passes through staging memory and `copier` puts it in its place. For
  /// destinations that want stores of their own kind.
  ticket read_through(std::span<file_read const> work, byte_copier copier) {
    return start(work, copier, true);
  }

  /// Pins `region` so that reads in place into it cost less. It must stay mapped, its pages must
  /// not be given back, and no read into it may be in flight when it is forgotten. False where it
  /// brings nothing or the kernel refuses.
  bool register_region(std::span<std::byte> region) {
    return parts_->reader->register_region(region);
  }
  void forget_region(std::span<std::byte> region) noexcept {
    parts_->reader->forget_region(region);
  }

  /// Size of a file when it was opened.
  [[nodiscard]] std::uint64_t file_bytes(file_id file) const {
    return parts_->at(file).opened.bytes;
  }
  [[nodiscard]] std::size_t staging_bytes() const noexcept {
    return parts_->reader->staging_bytes();
  }

  /// "io_uring (SINGLE_ISSUER, DEFER_TASKRUN), registered files, registered buffers, depth 64;
  /// direct", with the reason wherever a better way was not taken.
  [[nodiscard]] std::string mode() const {
    std::string text = parts_->reader->mode();
    if (!parts_->why_not_better.empty()) { text += " (" + parts_->why_not_better + ")"; }
    return text + "; " + describe_files(parts_->files, parts_->want_direct);
  }

 private:
  /// What tickets share with the home.
  struct parts {
    std::deque<tier::detail::model_file> files;
    std::unique_ptr<tier::detail::piece_reader> reader;
    std::string why_not_better;
    std::size_t piece_bytes = 0;
    bool want_direct = false;

    [[nodiscard]] tier::detail::model_file const& at(file_id file) const {
      auto const index = static_cast<std::size_t>(file);
      if (index >= files.size()) {
        throw contract_error{"nvme: file " + std::to_string(index) +
                             " was asked for, but this home has " + std::to_string(files.size()) +
                             " files"};
      }
      return files[index];
    }
  };

  class operation final : public ticket::operation {
   public:
    explicit operation(std::shared_ptr<parts> shared) noexcept : parts_{std::move(shared)} {}
    operation(operation const&) = delete;
    operation& operator=(operation const&) = delete;
    ~operation() override {
      try {
        parts_->reader->finish(work);
      } catch (...) {  // the broken contract was reported by wait()
      }
    }
    bool ready() noexcept override { return parts_->reader->poll(work); }
    void wait() override {
      parts_->reader->finish(work);
      if (work.failure) { throw to_error(*work.failure, parts_->files[work.failure->file]); }
    }
    tier::detail::batch work;

   private:
    std::shared_ptr<parts> parts_;
  };

  static void check(options const& wanted) {
    auto require = [](bool holds, char const* option, std::size_t value, char const* range) {
      if (!holds) {
        throw contract_error{std::string{"nvme: "} + option + " is " + std::to_string(value) +
                             " but must be " + range};
      }
    };
    require(wanted.queue_depth >= 1 && wanted.queue_depth <= 4096,
            "queue_depth",
            wanted.queue_depth,
            "1 to 4096");
    require(wanted.threads >= 1 && wanted.threads <= 256, "threads", wanted.threads, "1 to 256");
    require(wanted.piece_bytes % 4096 == 0 && wanted.piece_bytes >= 4096 &&
                wanted.piece_bytes <= 64 * mib,
            "piece_bytes",
            wanted.piece_bytes,
            "a multiple of 4096 from 4096 to 67108864");
    require(
        wanted.staging_bytes <= gib, "staging_bytes", wanted.staging_bytes, "at most 1073741824");
  }

  void open(std::vector<std::filesystem::path> const& paths, options const& wanted) {
    using enum read_engine;
    bool const automatic_engine = wanted.engine == automatic;
    bool const demand_direct = wanted.engine == uring_direct || wanted.engine == pread_direct;
    parts_->want_direct = automatic_engine || demand_direct;
    parts_->files = tier::detail::open_model_files(paths, parts_->want_direct, demand_direct);
    std::size_t edge = tier::detail::page_bytes;
    for (auto const& file : parts_->files) { edge = std::max(edge, file.alignment.offset); }
    parts_->piece_bytes = round_up(wanted.piece_bytes, edge);
    bool const want_pread = wanted.engine == pread_direct || wanted.engine == pread_buffered;
    if (!want_pread) {
#if defined(TERRACE_HAS_URING)
      parts_->reader = tier::detail::uring_reader::try_make(
          parts_->files,
          {wanted.queue_depth, parts_->piece_bytes, wanted.staging_bytes, edge, !demand_direct},
          parts_->why_not_better);
#else
      parts_->why_not_better = "this build has no liburing";
#endif
      if (parts_->reader == nullptr && !automatic_engine) {
        throw not_supported{"nvme: io_uring was asked for but cannot be had: " +
                            parts_->why_not_better + "; choose another engine"};
      }
    }
    if (parts_->reader == nullptr) {
      std::size_t const fitting =
          std::max<std::size_t>(wanted.staging_bytes / parts_->piece_bytes, 1);
      parts_->reader = std::make_unique<tier::detail::pread_reader>(
          parts_->files, std::min(wanted.threads, fitting), parts_->piece_bytes, !demand_direct);
    }
  }

  ticket start(std::span<file_read const> work, byte_copier copier, bool bounce_all) {
    auto started = std::make_unique<operation>(parts_);
    auto& books = started->work;
    books.copier = copier;
    tier::detail::read_planner planner{parts_->piece_bytes, books, bounce_all};
    for (auto const& one : work) {
      auto const& file = parts_->at(one.from.file);
      if (one.from.bytes == 0) { continue; }
      if (one.to == nullptr) {
        throw contract_error{"nvme: a read of " + std::to_string(one.from.bytes) + " bytes of " +
                             file.path.string() + " has no destination"};
      }
      if (one.from.offset > file.opened.bytes ||
          one.from.bytes > file.opened.bytes - one.from.offset) {
        books.failure = {
            static_cast<std::uint32_t>(one.from.file), one.from.offset, one.from.bytes, 0};
        return ticket{std::move(started)};  // nothing of the set is read
      }
      planner.add(file, one);
    }
    auto pieces = planner.take();
    if (pieces.empty()) { return {}; }
    parts_->reader->start(books, std::move(pieces));
    return ticket{std::move(started)};
  }

  [[nodiscard]] static std::string describe_files(std::deque<tier::detail::model_file> const& files,
                                                  bool want_direct) {
    if (!want_direct) { return "buffered, as asked"; }
    std::size_t direct = 0;
    std::string rest;
    for (auto const& file : files) {
      if (file.direct) {
        ++direct;
      } else {
        rest += "; " + file.path.string() + " buffered: " +
                (file.why_buffered.empty() ? "a direct read was refused with EINVAL"
                                           : file.why_buffered);
      }
    }
    if (rest.empty()) { return "direct"; }
    return "direct for " + std::to_string(direct) + " of " + std::to_string(files.size()) +
           " files" + rest;
  }

  std::shared_ptr<parts> parts_;
};

static_assert(home_tier<nvme>);

}  // namespace terrace
