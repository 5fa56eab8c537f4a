// SPDX-License-Identifier: Apache-2.0
#include "tier/in_child.hpp"
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/nvme.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;

namespace {

/// From here on this process gets EPERM from io_uring_setup, as in many containers.
bool forbid_io_uring() {
  sock_filter rules[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},  // the number of the system call
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  sock_fprog const program{4, rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Reads the whole file and answers the mode, or what went wrong.
std::string read_all(std::filesystem::path const& path,
                     std::vector<std::byte> const& content,
                     read_engine engine) {
  nvme home{{path}, {.engine = engine}};
  std::vector<std::byte> to(content.size());
  file_read const one{{file_id{0}, 0, content.size()}, to.data()};
  home.read({&one, 1}).wait();
  return to == content ? home.mode() : "wrong bytes";
}

}  // namespace

TEST_CASE("without io_uring nvme reads with threads and says why", "[tier]") {
  test::temporary_file const file;
  auto const content = test::distinct_bytes(mib + 1);
  file.write(content);
  auto const mode = test::in_child([&] {
    if (!forbid_io_uring()) { return std::string{"no seccomp"}; }
    return read_all(file.path(), content, read_engine::automatic);
  });
  if (mode == "no seccomp") { SKIP("this system has no seccomp"); }
  CHECK_THAT(mode, ContainsSubstring("pread on"));
#if defined(TERRACE_HAS_URING)
  CHECK_THAT(mode, ContainsSubstring("io_uring: Operation not permitted"));
  auto const refused = test::in_child([&] {
    return forbid_io_uring() ? read_all(file.path(), content, read_engine::uring_direct)
                             : std::string{};
  });
  CHECK_THAT(refused, ContainsSubstring("failed: ") && ContainsSubstring("choose another engine"));
#endif
}

#if defined(TERRACE_HAS_URING)
TEST_CASE("without the right to pin memory nvme reads unregistered and says why", "[tier]") {
  test::temporary_file const file;
  auto const content = test::distinct_bytes(mib + 1);
  file.write(content);
  REQUIRE(::chmod(file.path().c_str(), 0644) == 0);
  auto const mode = test::in_child([&] {
    rlimit const tight{64 * kib, 64 * kib};
    bool const ready =
        ::setrlimit(RLIMIT_MEMLOCK, &tight) == 0 && (::getuid() != 0 || ::setuid(65'534) == 0);
    return ready ? read_all(file.path(), content, read_engine::automatic) : std::string{"no limit"};
  });
  if (mode == "no limit" || mode.find("io_uring (") == std::string::npos) {
    SKIP("cannot be set up here: " << mode);
  }
  CHECK_THAT(mode, ContainsSubstring("buffers not registered") && ContainsSubstring("ulimit -l"));
}
#endif

TEST_CASE("a file whose file system tells no alignment is read all the same", "[tier]") {
  std::filesystem::path const folder{"/dev/shm"};
  if (!std::filesystem::is_directory(folder)) { SKIP("no /dev/shm on this system"); }
  test::temporary_file const file{folder};
  auto const content = test::distinct_bytes(mib + 77);
  file.write(content);
  auto const mode = read_all(file.path(), content, read_engine::automatic);
  CHECK_THAT(mode, ContainsSubstring("direct") || ContainsSubstring("buffered"));
}

TEST_CASE("a file without direct I/O is read buffered, named with the reason", "[tier]") {
  std::filesystem::path const path{"/proc/self/cmdline"};  // a regular file of size 0
  if (!std::filesystem::exists(path)) { SKIP("no /proc on this system"); }
  CHECK_THAT(nvme{{path}}.mode(), ContainsSubstring("/proc/self/cmdline buffered: "));
  CHECK_THROWS_WITH(
      (nvme{{path}, {.engine = read_engine::pread_direct}}),
      ContainsSubstring("/proc/self/cmdline") && ContainsSubstring("choose another engine"));
}
