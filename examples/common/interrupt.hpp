// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace terrace::runner {

/// While one lives, the first Ctrl-C asks the run to end cleanly and the second ends the program.
class interrupt_guard {
 public:
  interrupt_guard();
  interrupt_guard(interrupt_guard const&) = delete;
  interrupt_guard& operator=(interrupt_guard const&) = delete;
  ~interrupt_guard();

  /// Whether Ctrl-C was pressed since the guard was made.
  [[nodiscard]] bool requested() const noexcept;
};

}  // namespace terrace::runner
