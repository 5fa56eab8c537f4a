// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/dispatch_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/dispatch/cheapest.hpp>
#include <terrace/dispatch/device.hpp>
#include <terrace/dispatch/host.hpp>
#include <terrace/dispatch/min_batch.hpp>

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace terrace::dispatch {

/// A dispatch policy chosen at run time: `device`, `host`, `min-batch:N` or `auto`.
/// Errors: contract_error for any other text, or N that is no number from 1 to 1000000.
class any {
 public:
  explicit any(std::string_view text) : policy_{make(text)} {}

  [[nodiscard]] dispatch_choice choose(expert_work const& work) {
    return std::visit([&](auto& policy) { return policy.choose(work); }, policy_);
  }
  void observe(expert_work const& work, compute_side side, double seconds) {
    std::visit([&](auto& policy) { policy.observe(work, side, seconds); }, policy_);
  }
  /// Whether it may choose the host; a device pipeline then needs experts the host can read.
  [[nodiscard]] bool uses_host() const noexcept { return !std::holds_alternative<device>(policy_); }
  [[nodiscard]] bool uses_device() const noexcept { return !std::holds_alternative<host>(policy_); }

 private:
  using choice = std::variant<device, host, min_batch, cheapest>;

  [[nodiscard]] static choice make(std::string_view text) {
    if (text == "device") { return device{}; }
    if (text == "host") { return host{}; }
    if (text == "auto") { return cheapest{}; }
    constexpr std::string_view prefix = "min-batch:";
    constexpr std::size_t most = 1000000;
    if (text.starts_with(prefix)) {
      auto const number = text.substr(prefix.size());
      std::size_t tokens = 0;
      auto const [end, failed] =
          std::from_chars(number.data(), number.data() + number.size(), tokens);
      if (failed == std::errc{} && end == number.data() + number.size() && tokens >= 1 &&
          tokens <= most) {
        return min_batch{{.tokens = tokens}};
      }
    }
    throw contract_error{"there is no dispatch policy `" + std::string{text} +
                         "`; choose device, host, min-batch:N with N from 1 to 1000000, or auto"};
  }

  choice policy_;
};

static_assert(dispatch_policy<any>);

}  // namespace terrace::dispatch
