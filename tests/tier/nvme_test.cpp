// SPDX-License-Identifier: Apache-2.0
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/nvme.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;

namespace {

struct engine_case {
  read_engine engine;
  char const* words;  // of mode()
};
constexpr engine_case engines[] = {
    {read_engine::automatic, "direct"},
    {read_engine::uring_direct, "io_uring"},
    {read_engine::uring_buffered, "buffered, as asked"},
    {read_engine::pread_direct, "pread on"},
    {read_engine::pread_buffered, "buffered, as asked"},
};

/// A home with `engine`, or SKIP where this machine has no such engine.
nvme make_home(std::vector<std::filesystem::path> const& files, nvme::options const& wanted) {
  try {
    return nvme{files, wanted};
  } catch (not_supported const& why) { SKIP(why.what()); }
  throw contract_error{"SKIP returned"};
}

/// `bytes` of memory whose start is `shift` bytes past a 4096 boundary, filled with a pattern no
/// file has.
class destination {
 public:
  destination(std::size_t bytes, std::size_t shift)
      : bytes_{bytes}, memory_(bytes + shift + 2 * 4096, fill) {
    auto const base = reinterpret_cast<std::uintptr_t>(memory_.data());
    at_ = memory_.data() + (4096 - base % 4096) % 4096 + shift;
  }
  [[nodiscard]] std::byte* data() const noexcept { return at_; }
  /// True if exactly the wanted bytes changed.
  [[nodiscard]] bool holds(std::span<std::byte const> wanted) const {
    bool const inside = std::equal(wanted.begin(), wanted.end(), at_);
    auto const untouched = [](std::byte b) { return b == fill; };
    return inside && std::all_of(memory_.data(), static_cast<std::byte const*>(at_), untouched) &&
           std::all_of(static_cast<std::byte const*>(at_) + bytes_,
                       memory_.data() + memory_.size(),
                       untouched);
  }

 private:
  static constexpr std::byte fill{0xEE};
  std::size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* at_;
};

}  // namespace

TEST_CASE("nvme reads any offset, length and address with every engine", "[tier]") {
  auto const [engine, words] = GENERATE(from_range(engines));
  test::temporary_file const file;
  auto const content = test::distinct_bytes(3 * mib + 4097 + 13);
  file.write(content);
  nvme home =
      make_home({file.path()}, {.engine = engine, .queue_depth = 8, .piece_bytes = 256 * kib});
  CAPTURE(home.mode());
  CHECK_THAT(home.mode(), ContainsSubstring(words));

  std::size_t const end = content.size();
  std::size_t const lengths[] = {
      1, 2, 511, 512, 513, 4095, 4096, 4097, 65'536, 70'001, 262'144, 300'000, 1'048'576 + 3};
  std::size_t const offsets[] = {0, 1, 511, 512, 513, 4095, 4096, 5000, 262'143, 262'144};
  std::size_t const shifts[] = {0, 1, 64, 511, 512, 3000};
  for (std::size_t const bytes : lengths) {
    for (std::size_t const offset : offsets) {
      for (std::size_t const shift : shifts) {
        destination to{bytes, shift};
        file_read const one{{file_id{0}, offset, bytes}, to.data()};
        home.read({&one, 1}).wait();
        bool const good = to.holds(std::span{content}.subspan(offset, bytes));
        if (!good) { FAIL("offset " << offset << ", bytes " << bytes << ", shift " << shift); }
      }
    }
    destination last{bytes, bytes % 512};  // the end of the file, which is on no boundary
    file_read const one{{file_id{0}, end - bytes, bytes}, last.data()};
    home.read({&one, 1}).wait();
    CHECK(last.holds(std::span{content}.subspan(end - bytes)));
  }
}

TEST_CASE("nvme reads in place when file offset and address agree", "[tier]") {
  auto const engine = GENERATE(read_engine::uring_direct, read_engine::pread_direct);
  test::temporary_file const file;
  auto const content = test::distinct_bytes(2 * mib);
  file.write(content);
  nvme home = make_home({file.path()}, {.engine = engine});
  for (std::size_t const offset : {0, 4096, 32, 100'000}) {
    std::size_t const bytes = mib + 77;
    destination to{bytes, offset % 4096};
    file_read const one{{file_id{0}, offset, bytes}, to.data()};
    home.read({&one, 1}).wait();
    CHECK(to.holds(std::span{content}.subspan(offset, bytes)));
  }
}

TEST_CASE("nvme serves thousands of random extents of several files at once", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  std::uint32_t const seed = 4711;
  CAPTURE(seed);
  std::mt19937 random{seed};
  test::temporary_file const files[3];
  std::vector<std::byte> const contents[] = {test::distinct_bytes(1'000'003, 1),
                                             test::distinct_bytes(4096, 2),
                                             test::distinct_bytes(2 * mib, 3)};
  for (int i = 0; i < 3; ++i) { files[i].write(contents[i]); }
  // A short queue and little staging memory: most pieces have to wait for others.
  nvme home = make_home(
      {files[0].path(), files[1].path(), files[2].path()},
      {.engine = engine, .queue_depth = 4, .piece_bytes = 64 * kib, .staging_bytes = 128 * kib});
  std::vector<std::byte> memory(32 * mib);
  std::vector<file_read> work;
  std::size_t used = 0;
  while (work.size() < 3000) {
    auto const which = static_cast<std::uint32_t>(random() % 3);
    auto const& content = contents[which];
    std::size_t const offset = random() % content.size();
    std::size_t const bytes =
        random() % std::min<std::size_t>(content.size() - offset + 1, 1U << (random() % 19));
    if (used + bytes + 4096 > memory.size()) { break; }
    work.push_back({{file_id{which}, offset, bytes}, memory.data() + used});
    used += bytes + random() % 3;
  }
  REQUIRE(work.size() > 500);
  std::vector<ticket> tickets;
  for (std::size_t at = 0; at < work.size(); at += 100) {
    tickets.push_back(
        home.read(std::span{work}.subspan(at, std::min<std::size_t>(100, work.size() - at))));
  }
  std::shuffle(tickets.begin(), tickets.end(), random);
  for (auto& one : tickets) { one.wait(); }
  for (auto const& one : work) {
    auto const wanted = std::span{contents[static_cast<std::size_t>(one.from.file)]}.subspan(
        one.from.offset, one.from.bytes);
    REQUIRE(std::equal(wanted.begin(), wanted.end(), one.to));
  }
}

TEST_CASE("a ticket of nvme becomes ready by polling alone", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  auto const content = test::distinct_bytes(4 * mib);
  file.write(content);
  nvme home =
      make_home({file.path()}, {.engine = engine, .queue_depth = 2, .piece_bytes = 64 * kib});
  std::vector<std::byte> to(content.size());
  file_read const one{{file_id{0}, 0, content.size()}, to.data()};
  ticket waiting = home.read({&one, 1});
  while (!waiting.ready()) { std::this_thread::yield(); }
  CHECK((to == content));
}

TEST_CASE("tickets of nvme may outlive it and be dropped unread", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  auto const content = test::distinct_bytes(4 * mib);
  file.write(content);
  std::vector<std::byte> kept(content.size());
  std::vector<std::byte> dropped(content.size());
  std::optional<nvme> home =
      make_home({file.path()}, {.engine = engine, .queue_depth = 2, .piece_bytes = 64 * kib});
  file_read const first{{file_id{0}, 0, content.size()}, kept.data()};
  file_read const second{{file_id{0}, 0, content.size()}, dropped.data()};
  ticket waiting = home->read({&first, 1});
  {
    ticket const unread = home->read({&second, 1});
    home.reset();
  }
  CHECK((dropped == content));  // the destructor waited
  waiting.wait();
  CHECK((kept == content));
}

TEST_CASE("an extent of no bytes and an empty set are done at once", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  file.write(test::distinct_bytes(10));
  nvme home = make_home({file.path()}, {.engine = engine});
  file_read const nothing{{file_id{0}, 10, 0}, nullptr};
  ticket const none = home.read({&nothing, 1});
  CHECK(none.ready());
  CHECK(home.read({}).ready());
}

TEST_CASE("nvme names file, offset and bytes when an extent is outside the file", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  file.write(test::distinct_bytes(5000));
  nvme home = make_home({file.path()}, {.engine = engine});
  std::vector<std::byte> to(8192, std::byte{7});
  auto const wrong = GENERATE(extent{file_id{0}, 4999, 2},
                              extent{file_id{0}, 5001, 1},
                              extent{file_id{0}, ~0ULL - 10, 100},
                              extent{file_id{0}, 100, ~0ULL - 50});
  file_read const set[] = {{{file_id{0}, 0, 100}, to.data()}, {wrong, to.data() + 100}};
  ticket failing = home.read(set);
  CHECK_THROWS_WITH(failing.wait(),
                    ContainsSubstring(file.path().string()) &&
                        ContainsSubstring("offset " + std::to_string(wrong.offset)) &&
                        ContainsSubstring("5000 bytes"));
  CHECK(std::count(to.begin(), to.end(), std::byte{7}) == 8192);  // nothing of a bad set is read
}

TEST_CASE("a file that shrank after it was opened is an error, not a hang", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  std::size_t const left = GENERATE(0U, 1U, 4096U, 100'000U, 65'536U);
  test::temporary_file const file;
  file.write(test::distinct_bytes(mib));
  nvme home =
      make_home({file.path()}, {.engine = engine, .queue_depth = 2, .piece_bytes = 64 * kib});
  std::filesystem::resize_file(file.path(), left);
  for (std::size_t const shift : {0U, 3U}) {
    std::vector<std::byte> to(mib + 8192);
    auto const base = reinterpret_cast<std::uintptr_t>(to.data());
    file_read const one{{file_id{0}, 0, mib}, to.data() + (4096 - base % 4096) + shift};
    ticket failing = home.read({&one, 1});
    CHECK_THROWS_WITH(failing.wait(),
                      ContainsSubstring(file.path().string()) && ContainsSubstring("met the end"));
    CHECK_THROWS_AS(home.read({&one, 1}).wait(), io_error);
    if (left == 0) { continue; }
    std::byte still_there{};
    file_read const first{{file_id{0}, 0, 1}, &still_there};
    home.read({&first, 1}).wait();  // the home works on
    CHECK(still_there == test::distinct_bytes(1)[0]);
  }
}

TEST_CASE("nvme refuses what is not a model file", "[tier]") {
  CHECK_THROWS_WITH(nvme{{"/nonexistent/model.gguf"}},
                    ContainsSubstring("/nonexistent/model.gguf"));
  CHECK_THROWS_WITH(nvme{{"/"}}, ContainsSubstring("neither a regular file"));
  test::temporary_file const file;
  auto const pipe = file.path().string() + "-pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(nvme{{pipe}}, ContainsSubstring("neither a regular file"));
  std::filesystem::remove(pipe);
}

TEST_CASE("nvme refuses options out of range by name", "[tier]") {
  CHECK_THROWS_WITH((nvme{{}, {.queue_depth = 0}}), ContainsSubstring("queue_depth is 0"));
  CHECK_THROWS_WITH((nvme{{}, {.queue_depth = 4097}}), ContainsSubstring("queue_depth is 4097"));
  CHECK_THROWS_WITH((nvme{{}, {.piece_bytes = 1000}}), ContainsSubstring("piece_bytes is 1000"));
  CHECK_THROWS_WITH((nvme{{}, {.staging_bytes = 1UL << 40}}),
                    ContainsSubstring("staging_bytes is"));
  CHECK_THROWS_WITH((nvme{{}, {.threads = 0}}), ContainsSubstring("threads is 0"));
}

TEST_CASE("nvme refuses an unknown file and a missing destination", "[tier]") {
  test::temporary_file const file;
  file.write(test::distinct_bytes(10));
  nvme home{{file.path()}};
  std::byte to{};
  file_read const unknown{{file_id{1}, 0, 1}, &to};
  CHECK_THROWS_AS(home.read({&unknown, 1}), contract_error);
  file_read const nowhere{{file_id{0}, 0, 1}, nullptr};
  CHECK_THROWS_AS(home.read({&nowhere, 1}), contract_error);
}

TEST_CASE("nvme holds no more staging memory than asked for, down to one piece", "[tier]") {
  test::temporary_file const file;
  file.write(test::distinct_bytes(10));
  auto const engine = GENERATE(from_range(engines)).engine;
  nvme const roomy = make_home({file.path()}, {.engine = engine});
  CHECK(roomy.staging_bytes() <= 16 * mib);
  CHECK(roomy.staging_bytes() >= mib);
  nvme const tight = make_home(
      {file.path()}, {.engine = engine, .queue_depth = 1, .piece_bytes = 4096, .staging_bytes = 0});
  CHECK(tight.staging_bytes() <= 2 * 4096);
}

TEST_CASE("bytes read through a copier reach it exactly once", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  auto const content = test::distinct_bytes(3 * mib + 17);
  file.write(content);
  nvme home = make_home({file.path()}, {.engine = engine});
  std::vector<std::byte> to(content.size());
  std::atomic<std::size_t> copied{0};
  auto const copy =
      [](void* count, std::byte* at, std::byte const* from, std::size_t bytes) noexcept {
        std::memcpy(at, from, bytes);
        *static_cast<std::atomic<std::size_t>*>(count) += bytes;
      };
  file_read const one{{file_id{0}, 0, content.size()}, to.data()};
  home.read_through({&one, 1}, {copy, &copied}).wait();
  CHECK(copied == content.size());
  CHECK((to == content));
}

TEST_CASE("an idle nvme may be used from another thread", "[tier]") {
  auto const engine = GENERATE(from_range(engines)).engine;
  test::temporary_file const file;
  auto const content = test::distinct_bytes(4 * mib);
  file.write(content);
  nvme home = make_home({file.path()}, {.engine = engine});
  std::vector<std::byte> to(content.size());
  file_read const one{{file_id{0}, 0, content.size()}, to.data()};
  std::thread{[&] { home.read({&one, 1}).wait(); }}.join();
  CHECK((to == content));
  std::fill(to.begin(), to.end(), std::byte{});
  home.read({&one, 1}).wait();
  CHECK((to == content));
}

TEST_CASE("a ring with reads in flight refuses another thread", "[tier]") {
  test::temporary_file const file;
  auto const content = test::distinct_bytes(4 * mib);
  file.write(content);
  nvme home = make_home({file.path()}, {.engine = read_engine::uring_buffered});
  std::vector<std::byte> to(content.size());
  file_read const one{{file_id{0}, 0, content.size()}, to.data()};
  ticket flying = home.read({&one, 1});
  bool refused = false;
  std::thread{[&] {
    std::byte other{};
    file_read const second{{file_id{0}, 0, 1}, &other};
    try {
      home.read({&second, 1}).wait();
    } catch (contract_error const&) { refused = true; }
  }}.join();
  CHECK(refused);
  flying.wait();
  CHECK((to == content));
}

TEST_CASE("reads into a registered region are right at its edges and after it is forgotten",
          "[tier]") {
  test::temporary_file const file;
  auto const content = test::distinct_bytes(4 * mib);
  file.write(content);
  nvme home{{file.path()}};
  shim::anonymous_memory const memory{4 * mib};
  CAPTURE(home.mode());
  auto const inner = memory.bytes().subspan(mib, 2 * mib);
  bool const registered = home.register_region(inner);
  CHECK(registered == (home.mode().find("registered buffers") != std::string::npos));
  auto const check = [&] {
    file_read const one{{file_id{0}, 0, content.size()},
                        memory.data()};  // starts before and ends behind
    home.read({&one, 1}).wait();
    CHECK(std::equal(content.begin(), content.end(), memory.data()));
    std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{});
  };
  check();
  std::thread{check}.join();
  home.forget_region(inner);
  check();
}
