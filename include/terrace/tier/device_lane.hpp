// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/shim/cuda.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/error.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda_memory.hpp>
#include <terrace/shim/cuda_tickets.hpp>
#include <terrace/tier/staging_ring.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Pinned memory between a device and what no copy engine reads: files and pageable memory.
struct staging_options {
  std::size_t staging_bytes = 16 * mib;  ///< rounded up to whole slots, two at least
  std::size_t slot_bytes = mib;          ///< longest single copy; a multiple of 4096
};

/// The way to one device and back, for one tier: a stream in each direction, so that neither waits
/// for the other, tickets for what they do, and a bounded ring of staging memory.
class device_lane {
 public:
  /// Errors: contract_error for options out of range; out_of_capacity without memory to pin; cuda_error.
  device_lane(int device, staging_options const& wanted)
      : tickets_{device},
        up_{shim::make_stream(device)},
        down_{shim::make_stream(device)},
        memory_{shim::make_pinned_buffer(device, ring_bytes(wanted))},
        ring_{memory_.bytes(), wanted.slot_bytes} {}

  [[nodiscard]] int device() const noexcept { return tickets_.device(); }
  [[nodiscard]] stream_ref up() const noexcept { return stream_ref{up_.get()}; }
  [[nodiscard]] stream_ref down() const noexcept { return stream_ref{down_.get()}; }
  [[nodiscard]] shim::ticket_source const& tickets() const noexcept { return tickets_; }
  [[nodiscard]] staging_ring& ring() noexcept { return ring_; }
  [[nodiscard]] std::size_t staging_bytes() const noexcept { return memory_.size(); }

  /// What a lane with these options holds of main memory.
  [[nodiscard]] static std::size_t ring_bytes(staging_options const& wanted) {
    if (wanted.slot_bytes == 0 || wanted.slot_bytes % 4096 != 0 || wanted.slot_bytes > gib ||
        wanted.staging_bytes > 64 * gib) {
      throw contract_error{"staging for a device: slots of " + std::to_string(wanted.slot_bytes) +
                           " bytes in " + std::to_string(wanted.staging_bytes) +
                           "; a slot must be a multiple of 4096 up to 1 GiB, and the whole at most "
                           "64 GiB"};
    }
    return std::max(round_up(wanted.staging_bytes, wanted.slot_bytes), 2 * wanted.slot_bytes);
  }

  /// Sets bytes of the device to 0; done when it returns.
  void zero(std::byte* at, std::size_t bytes) const {
    shim::fill(up(), at, 0, bytes);
    shim::synchronize(up());
  }

 private:
  shim::ticket_source tickets_;
  shim::unique_stream up_;
  shim::unique_stream down_;
  shim::pinned_buffer memory_;
  staging_ring ring_;
};

namespace tier::detail {
/// Errors: contract_error naming the tier for a device that is not there.
inline void require_device(std::string_view tier, int device) {
  int const count = shim::device_count();
  if (device >= 0 && device < count) { return; }
  throw contract_error{std::string{tier} + ": CUDA device " + std::to_string(device) +
                       " was asked for, but this machine has " + std::to_string(count) +
                       "; devices are counted from 0"};
}
}  // namespace tier::detail

}  // namespace terrace

#endif
