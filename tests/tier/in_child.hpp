// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

namespace terrace::test {

/// Runs `body` in a process of its own, whose limits it may spoil, and answers the text it returns;
/// "failed: ..." if it threw, "died" if it ended otherwise.
template <class Body>
[[nodiscard]] std::string in_child(Body&& body) {
  int ends[2];
  if (::pipe(ends) != 0) { return "no pipe"; }
  pid_t const child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = body();
    } catch (std::exception const& failure) { text = std::string{"failed: "} + failure.what(); }
    auto const written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "died";
}

}  // namespace terrace::test
