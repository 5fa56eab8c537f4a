// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::runner::test {

/// What a program did.
struct outcome {
  int status = -1;  ///< exit status; 128 + the signal when one ended it
  std::string out;
  std::string err;
};

/// A program on its own; standard input is empty unless given.
class program {
 public:
  program(std::string path, std::vector<std::string> arguments)
      : path_{std::move(path)}, arguments_{std::move(arguments)} {}

  /// Runs it to its end.
  [[nodiscard]] outcome run(std::string const& input = {}) {
    start();
    static_cast<void>(!::write(in_, input.data(), input.size()));
    ::close(in_);
    return finish();
  }
  /// Runs it, sends SIGINT as soon as it has written `bytes` to standard output, and waits for its
  /// end.
  [[nodiscard]] outcome interrupt_after(std::size_t bytes) {
    start();
    ::close(in_);
    std::string early;
    std::array<char, 64> part{};
    while (early.size() < bytes) {
      auto const got = ::read(out_, part.data(), part.size());
      if (got <= 0) { break; }
      early.append(part.data(), static_cast<std::size_t>(got));
    }
    ::kill(child_, SIGINT);
    auto result = finish();
    result.out.insert(0, early);
    return result;
  }

 private:
  void start() {
    std::array<int, 2> in{}, out{};
    char err[] = "/tmp/terrace-stderr-XXXXXX";
    err_ = ::mkstemp(err);
    ::unlink(err);
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0 || err_ < 0) {
      throw std::runtime_error{"no pipes"};
    }
    std::vector<char*> argv{path_.data()};
    for (auto& one : arguments_) { argv.push_back(one.data()); }
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err_, 2);
      ::execv(path_.c_str(), argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  outcome finish() {
    outcome result{.status = -1, .out = drain(out_), .err = {}};
    int status = 0;
    ::waitpid(child_, &status, 0);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ::lseek(err_, 0, SEEK_SET);
    result.err = drain(err_);
    return result;
  }
  static std::string drain(int file) {
    std::string all;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = ::read(file, part.data(), part.size())) > 0;) {
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    ::close(file);
    return all;
  }

  std::string path_;
  std::vector<std::string> arguments_;
  pid_t child_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
};

}  // namespace terrace::runner::test
