// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <string_view>

using terrace::kib;
using terrace::runner::free_memory_bytes;
using terrace::runner::usable_processors;

namespace {

/// A machine whose /proc and /sys a test writes.
class fake_machine {
 public:
  [[nodiscard]] std::filesystem::path path() const { return folder_.file(""); }
  void write(std::filesystem::path const& name, std::string_view content) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream{path() / name} << content;
  }

 private:
  terrace::test::scratch_folder folder_;
};

}  // namespace

TEST_CASE("free memory is what the kernel calls available", "[runner]") {
  fake_machine const root;
  root.write("proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:  4000 kB\n");
  CHECK(free_memory_bytes(root.path()) == 4000 * kib);
}

TEST_CASE("a machine that does not say what is free is an error", "[runner]") {
  fake_machine const root;
  CHECK_THROWS_AS(free_memory_bytes(root.path()), terrace::io_error);
}

TEST_CASE("the tightest version 2 group around the process bounds free memory", "[runner]") {
  fake_machine const root;
  root.write("proc/meminfo", "MemAvailable:  4000000 kB\n");
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.write("sys/fs/cgroup/outer/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/outer/memory.current", "700000\n");
  root.write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 200000\n");
  CHECK(free_memory_bytes(root.path()) == 500000);
}

TEST_CASE("a container that sees its own group as the root is bounded by it", "[runner]") {
  fake_machine const root;
  root.write("proc/meminfo", "MemAvailable:  4000000 kB\n");
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "300000\n");
  root.write("sys/fs/cgroup/memory.current", "400000\n");
  CHECK(free_memory_bytes(root.path()) == 0);
}

TEST_CASE("a version 1 memory group bounds free memory even when its path is not visible",
          "[runner]") {
  fake_machine const root;
  root.write("proc/meminfo", "MemAvailable:  4000000 kB\n");
  root.write("proc/self/cgroup", "4:cpu,memory:/docker/abc\n3:pids:/\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "250000\n");
  CHECK(free_memory_bytes(root.path()) == 750000);
}

TEST_CASE("a processor quota bounds the threads, rounded up", "[runner]") {
  fake_machine const root;
  root.write("proc/self/cgroup", "0::/a\n");
  root.write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  CHECK(usable_processors(root.path()) == 1);
  root.write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  CHECK(usable_processors(root.path()) == usable_processors(root.path() / "nowhere"));
}
