// SPDX-License-Identifier: Apache-2.0
/// What a plain loop over io_uring reads with direct I/O, `depth` blocks in flight: the peer of the
/// other programs where there is no fio.
#include "rate_command.hpp"

#include <terrace/core/error.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/shim/file.hpp>
#include <terrace/shim/io_uring.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using namespace terrace;

/// Passes when `code`, an errno value, is 0.
void require(int code, char const* what) {
  if (code != 0) { throw io_error{std::string{what} + " failed: " + shim::errno_text(code), code}; }
}

bench::rate measure(bench::rate_settings const& wanted) {
  auto const file = shim::open_for_reading(wanted.path);
  require(shim::set_direct(file.fd.get(), true), "direct I/O");
  int code = 0;
  auto ring = shim::io_ring::try_open(static_cast<unsigned>(wanted.depth), code);
  require(ring ? 0 : code, "io_uring");
  int const descriptor = file.fd.get();
  require(ring->register_files({&descriptor, 1}), "registering the file");
  shim::anonymous_memory const memory{wanted.block_bytes * wanted.depth};
  require(ring->register_only_buffer(memory.bytes()), "registering memory");

  bench::block_order order{file.bytes / wanted.block_bytes, 1, wanted.random};
  auto const start = [&](std::uint64_t slot) {
    bool const queued = ring->prepare({.to = memory.data() + slot * wanted.block_bytes,
                                       .bytes = static_cast<std::uint32_t>(wanted.block_bytes),
                                       .offset = order.next() * wanted.block_bytes,
                                       .tag = slot,
                                       .buffer = 0},
                                      /*file_is_registered=*/true);
    require(queued ? 0 : EBUSY, "queueing a read");
  };
  std::uint64_t bytes = 0;
  bench::stopwatch const watch{wanted.seconds};
  std::size_t flying = 0;
  for (; flying < wanted.depth; ++flying) { start(flying); }
  while (flying != 0) {
    require(ring->submit(/*wait=*/true), "submitting");
    while (auto const done = ring->next()) {
      require(done->result == static_cast<int>(wanted.block_bytes) ? 0 : EIO, "a read");
      bytes += wanted.block_bytes;
      if (watch.running()) {
        start(done->tag);
      } else {
        --flying;
      }
    }
  }
  return {bytes, watch.seconds(), "io_uring (" + std::string{ring->mode()} + "), plain loop"};
}

}  // namespace

int main(int count, char** words) {
  return terrace::bench::rate_command("plain_rate", count, words, measure);
}
