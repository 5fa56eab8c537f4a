// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <sched.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace terrace::runner {
namespace {

using std::filesystem::path;

/// The number after `key` in a file of "key value" lines.
std::optional<std::uint64_t> read_field(path const& file, std::string_view key) {
  std::ifstream in{file};
  std::string word;
  std::uint64_t value = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields{line};
    if (fields >> word && word == key && fields >> value) { return value; }
  }
  return std::nullopt;
}

/// The number a file consists of; "max" and missing files are nothing.
std::optional<std::uint64_t> read_number(path const& file) {
  std::ifstream in{file};
  std::uint64_t value = 0;
  if (in >> value) { return value; }
  return std::nullopt;
}

/// Calls `visit(folder)` for the process's control group and every group around it, for version 2
/// (`controller` empty) or one controller of version 1. A container often shows its own group as
/// the root, so the root always counts.
void for_each_group(path const& root,
                    std::string_view controller,
                    std::function<void(path const&)> const& visit) {
  path const mount = root / "sys/fs/cgroup" / controller;
  std::ifstream groups{root / "proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    auto const first = line.find(':');
    auto const second = line.find(':', first + 1);
    if (second == std::string::npos) { continue; }
    std::istringstream names{line.substr(first + 1, second - first - 1)};
    bool matches = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) {
      matches = matches || name == controller;
    }
    if (!matches) { continue; }
    for (path inside = path{line.substr(second + 1)}.relative_path(); !inside.empty();
         inside = inside.parent_path()) {
      visit(mount / inside);
    }
  }
  visit(mount);
}

std::uint64_t room_in_group(path const& group,
                            char const* limit,
                            char const* usage,
                            char const* droppable) {
  auto const most = read_number(group / limit);
  if (!most) { return UINT64_MAX; }
  std::uint64_t const used = read_number(group / usage).value_or(0);
  std::uint64_t const cache = read_field(group / "memory.stat", droppable).value_or(0);
  std::uint64_t const held = used - std::min(used, cache);
  return *most - std::min(*most, held);
}

double processors_in_group(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : 1e9;
}

}  // namespace

std::uint64_t free_memory_bytes(path const& root) {
  auto const available = read_field(root / "proc/meminfo", "MemAvailable:");
  if (!available) {
    throw io_error{
        (root / "proc/meminfo").string() +
            " does not say how much memory is available; give every tier a size in bytes",
        0};
  }
  std::uint64_t room = *available * kib;
  for_each_group(root, "", [&](path const& group) {
    room = std::min(room, room_in_group(group, "memory.max", "memory.current", "inactive_file"));
  });
  for_each_group(root, "memory", [&](path const& group) {
    room = std::min(
        room,
        room_in_group(
            group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
  });
  return room;
}

int usable_processors(path const& root) {
  double usable = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) { usable = CPU_COUNT(&allowed); }
  for_each_group(root, "", [&](path const& group) {
    std::ifstream in{group / "cpu.max"};
    double quota = 0;
    double period = 0;
    if (in >> quota >> period) { usable = std::min(usable, processors_in_group(quota, period)); }
  });
  for_each_group(root, "cpu", [&](path const& group) {
    auto const quota =
        read_number(group / "cpu.cfs_quota_us");  // -1, read as a huge number or nothing: no quota
    auto const period = read_number(group / "cpu.cfs_period_us");
    if (quota && period) {
      usable = std::min(
          usable, processors_in_group(static_cast<double>(*quota), static_cast<double>(*period)));
    }
  });
  return std::max(1, static_cast<int>(std::ceil(usable)));
}

std::uint64_t stored_bytes(path const& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) { return 0; }
  if (!S_ISCHR(facts.st_mode)) { return static_cast<std::uint64_t>(facts.st_size); }
  auto const number =
      std::to_string(major(facts.st_rdev)) + ":" + std::to_string(minor(facts.st_rdev));
  return read_number(path{"/sys/dev/char"} / number / "size").value_or(0);
}

}  // namespace terrace::runner
