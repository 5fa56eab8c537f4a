// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/observe/json_text.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace terrace::observe {

/// One value shown when an event is selected.
struct trace_argument {
  std::string_view name;
  std::variant<std::int64_t, double, std::string_view> value;
};

/// A span of time on one track. Times are nanoseconds since the trace began.
struct trace_event {
  std::string_view name;
  std::string_view category;
  std::uint32_t track = 0;
  std::uint64_t start_ns = 0;
  std::uint64_t duration_ns = 0;
  std::span<trace_argument const> arguments{};
};

/// Writes a trace that ui.perfetto.dev and chrome://tracing read: an object with `traceEvents`,
/// times in microseconds.
///
/// Events gather in 64 KiB and then go to the file together with the closing brackets, which the
/// next batch overwrites: a file that can be rewound is valid JSON whenever the program stops; a
/// pipe is valid from `close` on.
/// Errors: io_error naming the file when it cannot be opened or written; the trace is then over, and later events are
///         dropped. The destructor closes and swallows; call `close` to learn of a full disk.
/// Cost:   one lock and some formatting per event; safe to use from several threads.
class trace_writer {
 public:
  explicit trace_writer(std::string path, std::string_view process = "terrace")
      : path_{std::move(path)} {
    file_.reset(std::fopen(path_.c_str(), "wb"));
    if (file_ == nullptr) { fail("cannot be opened"); }
    rewindable_ = std::fseek(file_.get(), 0, SEEK_CUR) == 0;
    buffer_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    buffer_ += "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":" +
               json_quoted(process) + "}}";
    flush();
  }
  trace_writer(trace_writer const&) = delete;
  trace_writer& operator=(trace_writer const&) = delete;
  ~trace_writer() {
    try {
      close();
    } catch (...) {  // a destructor does not report; whoever cares calls close()
    }
  }

  /// Nanoseconds since the trace began: the clock of `trace_event`.
  [[nodiscard]] std::uint64_t now_ns() const noexcept {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds{std::chrono::steady_clock::now() - start_}.count());
  }

  void name_track(std::uint32_t track, std::string_view name) {
    add("{\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(track) +
        ",\"name\":\"thread_name\",\"args\":{\"name\":" + json_quoted(name) + "}}");
  }
  void complete(trace_event const& event) {
    std::string text =
        "{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(event.track) +
        ",\"name\":" + json_quoted(event.name) + ",\"cat\":" + json_quoted(event.category) +
        ",\"ts\":" + microseconds(event.start_ns) + ",\"dur\":" + microseconds(event.duration_ns);
    if (!event.arguments.empty()) {
      text += ",\"args\":{";
      for (trace_argument const& each : event.arguments) {
        if (text.back() != '{') { text += ','; }
        text += json_quoted(each.name) + ":" +
                std::visit([](auto value) { return number_or_text(value); }, each.value);
      }
      text += '}';
    }
    add(text + "}");
  }
  /// Writes what is left and ends the file. Further events are dropped.
  void close() {
    std::scoped_lock const lock{guard_};
    if (file_ == nullptr) { return; }
    closing_ = true;
    flush();
    if (std::fclose(file_.release()) != 0) { fail("could not be finished"); }
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  static constexpr std::size_t batch_bytes = 65'536;
  static constexpr std::string_view ending = "\n]}\n";

  [[nodiscard]] static std::string number_or_text(std::int64_t value) {
    return std::to_string(value);
  }
  [[nodiscard]] static std::string number_or_text(double value) { return json_number(value); }
  [[nodiscard]] static std::string number_or_text(std::string_view value) {
    return json_quoted(value);
  }
  [[nodiscard]] static std::string microseconds(std::uint64_t ns) {
    std::array<char, 32> text{};
    std::snprintf(text.data(),
                  text.size(),
                  "%llu.%03u",
                  static_cast<unsigned long long>(ns / 1000),
                  static_cast<unsigned>(ns % 1000));
    return text.data();
  }

  void add(std::string const& event) {
    std::scoped_lock const lock{guard_};
    if (file_ == nullptr) { return; }
    buffer_ += ",\n";
    buffer_ += event;
    if (buffer_.size() >= batch_bytes) { flush(); }
  }
  void flush() {
    bool const end = rewindable_ || closing_;
    std::size_t const length = buffer_.size();
    if (end) { buffer_ += ending; }
    bool const written =
        std::fwrite(buffer_.data(), 1, buffer_.size(), file_.get()) == buffer_.size() &&
        std::fflush(file_.get()) == 0;
    if (!written) {
      int const code = errno;
      file_.reset();
      errno = code;
      fail("could not be written");
    }
    if (rewindable_ && !closing_ &&
        std::fseek(file_.get(), -static_cast<long>(ending.size()), SEEK_CUR) != 0) {
      rewindable_ = false;
    }
    bytes_ += length;
    buffer_.clear();
  }
  [[noreturn]] void fail(std::string_view what) const {
    int const code = errno;
    throw io_error{"the trace file " + path_ + " " + std::string{what} + " after " +
                       std::to_string(bytes_) + " bytes (" + std::strerror(code) +
                       "); choose a writable place with room",
                   code};
  }

  std::string path_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex guard_;
  std::unique_ptr<std::FILE, closer> file_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;  ///< written so far, without the ending
  bool rewindable_ = false;
  bool closing_ = false;
};

}  // namespace terrace::observe
