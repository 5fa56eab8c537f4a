// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/byte_source.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::format::detail {

/// Refuses a GGUF file that goes on after its last tensor, which ends at `data_end`, with anything
/// but padding. Shards joined with `cat` would otherwise load as the first of them.
///
/// Padding is zeros, or at most one alignment of other bytes, and no longer than 64 MiB.
inline void check_trailing_bytes(byte_source const& source,
                                 std::uint64_t data_end,
                                 std::uint64_t alignment) {
  constexpr std::uint64_t longest = 64 * mib;
  std::uint64_t const size = source.size_bytes();
  std::uint64_t const tail = size - std::min(size, data_end);
  auto const refuse = [&] {
    throw format_error{source.name() + ": " + std::to_string(tail) +
                       " bytes follow the last tensor, which ends at byte " +
                       std::to_string(data_end) +
                       ", and they are not padding; the file is damaged, get it again"};
  };
  std::vector<std::byte> window(static_cast<std::size_t>(std::min<std::uint64_t>(tail, 1 * mib)));
  std::uint64_t nonzero = 0;
  for (std::uint64_t at = data_end; at < size; at += window.size()) {
    window.resize(static_cast<std::size_t>(std::min<std::uint64_t>(window.size(), size - at)));
    source.read(at, window);
    auto const first =
        std::find_if(window.begin(), window.end(), [](auto b) { return b != std::byte{0}; });
    std::uint64_t const start = at + static_cast<std::uint64_t>(first - window.begin());
    if (nonzero == 0 && first != window.end() && size - start >= 4) {
      std::array<char, 4> magic;
      source.read(start, std::as_writable_bytes(std::span{magic}));
      if (std::string_view{magic.data(), 4} == "GGUF") {
        throw format_error{source.name() + ": a second GGUF file begins at byte " +
                           std::to_string(start) +
                           "; shards cannot be joined with `cat`, keep them as separate files "
                           "under their own names"};
      }
    }
    nonzero += window.size() -
               static_cast<std::size_t>(std::count(window.begin(), window.end(), std::byte{0}));
    if (nonzero > alignment || tail > longest) { refuse(); }
  }
}

}  // namespace terrace::format::detail
