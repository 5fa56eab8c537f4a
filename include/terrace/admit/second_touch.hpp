// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/admission_policy.hpp>
#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace::admit {

/// Lets a block in when it arrives the second time within the last `remembered` first arrivals.
/// Keeps what is used once out of a level that is slow to write. A block let in starts anew: once
/// evicted, it needs two arrivals again.
///
/// Cost: O(1) per arrival; about 50 bytes per remembered block.
class second_touch {
 public:
  struct options {
    std::size_t remembered = 65'536;  ///< blocks; 1 to 16 million
  };

  explicit second_touch(options chosen) {
    if (chosen.remembered < 1 || chosen.remembered > most_remembered) {
      throw contract_error{"admit::second_touch: remembered is " +
                           std::to_string(chosen.remembered) + "; choose from 1 to " +
                           std::to_string(most_remembered) + " blocks"};
    }
    ring_.resize(chosen.remembered);
  }

  [[nodiscard]] bool admit(block_id id) {
    if (std::uint32_t const* seen = slots_.find(id)) {
      ring_[*seen] = block_id{};
      slots_.erase(id);
      return true;
    }
    slots_.assign(id, static_cast<std::uint32_t>(next_));
    if (ring_[next_] != block_id{}) { slots_.erase(ring_[next_]); }
    ring_[next_] = id;
    next_ = (next_ + 1) % ring_.size();
    return false;
  }

 private:
  static constexpr std::size_t most_remembered = 16'777'216;

  std::vector<block_id>
      ring_;  ///< first arrivals, overwritten oldest first; empty where let in since
  block_map<std::uint32_t> slots_;
  std::size_t next_ = 0;
};

static_assert(admission_policy<second_touch>);

}  // namespace terrace::admit
