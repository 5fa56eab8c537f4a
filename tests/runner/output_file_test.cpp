// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include "support/temporary_folder.hpp"

#include <terrace/core/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <iterator>
#include <string>

using Catch::Matchers::ContainsSubstring;
using terrace::runner::output_file;
using terrace::runner::test::temporary_folder;

namespace {
auto files_in(std::filesystem::path const& folder) {
  return std::distance(std::filesystem::directory_iterator{folder},
                       std::filesystem::directory_iterator{});
}
}  // namespace

TEST_CASE("an output file appears whole when it is committed", "[runner]") {
  temporary_folder folder;
  output_file file{folder / "out"};
  file.write("one ");
  file.write("two");
  CHECK(!std::filesystem::exists(folder / "out"));
  file.commit();
  CHECK(folder.read("out") == "one two");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an output file that is not committed leaves the older one alone", "[runner]") {
  temporary_folder folder;
  folder.write("out", "older");
  { output_file{folder / "out"}.write("newer"); }
  CHECK(folder.read("out") == "older");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an output file behind a link is replaced where the link points", "[runner]") {
  temporary_folder folder;
  folder.write("target", "older");
  std::filesystem::create_symlink("target", folder / "link");
  output_file file{folder / "link"};
  file.write("newer");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(folder.read("target") == "newer");
}

TEST_CASE("a missing folder and a folder in the file's place are refused by name at once",
          "[runner]") {
  temporary_folder folder;
  CHECK_THROWS_WITH(output_file{folder / "no/such/out"},
                    ContainsSubstring("no/such/out could not be written"));
  CHECK_THROWS_WITH(output_file{folder.path()}, ContainsSubstring(folder.path().string()));
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("a full device is an error by the time of commit", "[runner]") {
  if (!std::filesystem::exists("/dev/full")) { SKIP("this system has no /dev/full"); }
  output_file file{"/dev/full"};
  file.write("text");
  CHECK_THROWS_WITH(file.commit(), ContainsSubstring("/dev/full"));
}
