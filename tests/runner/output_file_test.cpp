// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <iterator>
#include <string>

using Catch::Matchers::ContainsSubstring;
using terrace::runner::output_file;
using terrace::test::bytes_of;
using terrace::test::scratch_folder;

namespace {
auto files_in(std::filesystem::path const& folder) {
  return std::distance(std::filesystem::directory_iterator{folder},
                       std::filesystem::directory_iterator{});
}
}  // namespace

TEST_CASE("an output file appears whole when it is committed", "[runner]") {
  scratch_folder const folder;
  output_file file{folder.file("out")};
  file.write("one ");
  file.write("two");
  CHECK(!std::filesystem::exists(folder.file("out")));
  file.commit();
  CHECK(bytes_of(folder.file("out")) == "one two");
  CHECK(files_in(folder.file("")) == 1);
}

TEST_CASE("an output file that is not committed leaves the older one alone", "[runner]") {
  scratch_folder const folder;
  static_cast<void>(folder.write("out", "older"));
  { output_file{folder.file("out")}.write("newer"); }
  CHECK(bytes_of(folder.file("out")) == "older");
  CHECK(files_in(folder.file("")) == 1);
}

TEST_CASE("an output file behind a link is replaced where the link points", "[runner]") {
  scratch_folder const folder;
  static_cast<void>(folder.write("target", "older"));
  std::filesystem::create_symlink("target", folder.file("link"));
  output_file file{folder.file("link")};
  file.write("newer");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(bytes_of(folder.file("target")) == "newer");
}

TEST_CASE("a missing folder and a folder in the file's place are refused by name at once",
          "[runner]") {
  scratch_folder const folder;
  CHECK_THROWS_WITH(output_file{folder.file("no/such/out")},
                    ContainsSubstring("no/such/out could not be written"));
  CHECK_THROWS_WITH(output_file{folder.file("")}, ContainsSubstring(folder.file("")));
  CHECK(files_in(folder.file("")) == 0);
}

TEST_CASE("a full device is an error by the time of commit", "[runner]") {
  if (!std::filesystem::exists("/dev/full")) { SKIP("this system has no /dev/full"); }
  output_file file{"/dev/full"};
  file.write("text");
  CHECK_THROWS_WITH(file.commit(), ContainsSubstring("/dev/full"));
}
