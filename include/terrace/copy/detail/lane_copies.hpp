// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/stream_ref.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda.hpp>
#include <terrace/tier/staging_ring.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// Copies by a device's copy engine, on a lane.
namespace terrace::copy::detail {

/// How the sentence of a copy that failed begins.
struct copy_words {
  std::string_view from;
  std::string_view to;
  std::size_t bytes = 0;
  int device = 0;

  [[nodiscard]] std::string operator()() const {
    return "copying " + format_size(bytes) + " from " + std::string{from} + " to " +
           std::string{to} + " on CUDA device " + std::to_string(device);
  }
};

/// An operation that could not even start: its error is the ticket's, as that of one that failed on
/// its way.
class refused_operation final : public ticket::operation {
 public:
  explicit refused_operation(std::exception_ptr why) noexcept : why_{std::move(why)} {}
  bool ready() noexcept override { return true; }
  void wait() override { std::rethrow_exception(why_); }

 private:
  std::exception_ptr why_;
};
template <class Start>
[[nodiscard]] ticket start_or_refuse(Start&& start) {
  try {
    return start();
  } catch (...) { return ticket{std::make_unique<refused_operation>(std::current_exception())}; }
}

/// Queues copies on `on`; their ticket ends when the bytes are there. If that fails half-way, none
/// is under way any more when the exception leaves.
template <class Queue>
[[nodiscard]] ticket queue_copies(device_lane const& lane,
                                  stream_ref on,
                                  copy_words const& words,
                                  Queue&& queue) {
  try {
    queue();
    return lane.tickets().after(on, words);
  } catch (...) {
    try {
      shim::synchronize(on);
    } catch (error const&) {  // then the device is lost, and the first error says so
    }
    throw;
  }
}

/// One copy of `words.bytes`.
[[nodiscard]] inline ticket copy_on(device_lane const& lane,
                                    stream_ref on,
                                    std::byte* to,
                                    std::byte const* from,
                                    copy_words const& words) {
  return start_or_refuse([&] {
    return queue_copies(lane, on, words, [&] { shim::copy(on, to, from, words.bytes, words); });
  });
}

[[nodiscard]] inline copy_words words_for(std::span<staged_part const> parts, copy_words words) {
  words.bytes = 0;
  for (auto const& part : parts) { words.bytes += part.bytes; }
  return words;
}
/// From a staging slot to the device.
[[nodiscard]] inline ticket copy_parts_up(device_lane const& lane,
                                          std::span<staged_part const> parts,
                                          copy_words const& whole) {
  auto const words = words_for(parts, whole);
  return queue_copies(lane, lane.up(), words, [&] {
    for (auto const& part : parts) {
      shim::copy(lane.up(), part.block, part.staged, part.bytes, words);
    }
  });
}
/// From the device to a staging slot.
[[nodiscard]] inline ticket copy_parts_down(device_lane const& lane,
                                            std::span<staged_part const> parts,
                                            copy_words const& whole) {
  auto const words = words_for(parts, whole);
  return queue_copies(lane, lane.down(), words, [&] {
    for (auto const& part : parts) {
      shim::copy(lane.down(), part.staged, part.block, part.bytes, words);
    }
  });
}

}  // namespace terrace::copy::detail

#endif
