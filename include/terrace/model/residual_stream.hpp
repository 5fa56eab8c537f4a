// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/model/config.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace terrace::model {

/// What layers add to: one live sum per token and, in models with a residual bank, the sums that
/// were stored before it, which are never written again.
///
/// Shapes: every sum is [tokens, hidden], row-major float32, in backend memory.
template <class Backend>
class residual_stream {
 public:
  explicit residual_stream(decoder_config const& config)
      : hidden_{static_cast<std::size_t>(config.hidden)},
        sums_(static_cast<std::size_t>(config.bank_vectors()) + 1) {}

  /// Room for `tokens` tokens with nothing stored; the live sum is undefined.
  void begin(Backend& backend, std::size_t tokens) {
    tokens_ = tokens;
    stored_ = 0;
    backend.resize(sums_.front(), values());
  }
  /// Stores the live sum; the next one starts at zero. Errors: contract_error when the bank is
  /// full.
  void store(Backend& backend) {
    if (stored_ + 1 == sums_.size()) {
      throw contract_error{"a residual bank of " + std::to_string(stored_) +
                           " vectors is full; a layer stored out of turn"};
    }
    ++stored_;
    backend.resize(sums_[stored_], values());
    backend.zero(sums_[stored_].data(), values());
  }

  [[nodiscard]] float* sum() noexcept { return sums_[stored_].data(); }
  [[nodiscard]] std::size_t values() const noexcept { return tokens_ * hidden_; }
  [[nodiscard]] bool has_stored() const noexcept { return stored_ > 0; }
  /// The stored sums, oldest first, and the live one, each from token `first` on. Valid until the
  /// next call.
  [[nodiscard]] std::span<float const* const> candidates(std::size_t first) {
    candidates_.clear();
    for (std::size_t i = 0; i <= stored_; ++i) {
      candidates_.push_back(sums_[i].data() + first * hidden_);
    }
    return candidates_;
  }

 private:
  std::size_t hidden_;
  std::size_t tokens_ = 0;
  std::size_t stored_ = 0;  ///< and sums_[stored_] is the live one
  std::vector<typename Backend::template buffer<float>> sums_;
  std::vector<float const*> candidates_;
};

}  // namespace terrace::model
