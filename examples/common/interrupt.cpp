// SPDX-License-Identifier: Apache-2.0
#include "interrupt.hpp"

#include <csignal>

namespace terrace::runner {
namespace {

// A signal handler can reach nothing but static storage.
volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

interrupt_guard::interrupt_guard() {
  interrupted = 0;
  std::signal(SIGINT, note_interrupt);
}

interrupt_guard::~interrupt_guard() { std::signal(SIGINT, SIG_DFL); }

bool interrupt_guard::requested() const noexcept { return interrupted != 0; }

}  // namespace terrace::runner
