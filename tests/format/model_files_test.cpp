// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/model_files.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sys/stat.h>

#include <string>

using Catch::Matchers::ContainsSubstring;
using format_test::refusal;
using format_test::temporary_folder;
using format_test::write_file;
using terrace::format::container;
using terrace::format::find_model_files;

namespace {
std::string refusal_of(std::filesystem::path const& path) {
  return refusal([&] { (void)find_model_files(path); });
}
}  // namespace

TEST_CASE("a folder with a config and safetensors is a safetensors model even beside a GGUF",
          "[format]") {
  temporary_folder const folder;
  write_file(folder / "config.json", "{}");
  write_file(folder / "model.safetensors", "");
  write_file(folder / "model.gguf", "");
  write_file(folder / "other.gguf", "");
  auto const found = find_model_files(folder.path());
  CHECK(found.kind == container::safetensors);
  CHECK(found.files == std::vector{folder / "model.safetensors"});
  CHECK(find_model_files(folder / "model.gguf").kind == container::gguf);
}

TEST_CASE("a folder without a config prefers its GGUF", "[format]") {
  temporary_folder const folder;
  write_file(folder / "draft.safetensors", "");
  CHECK(find_model_files(folder.path()).kind == container::safetensors);
  write_file(folder / "model.gguf", "");
  CHECK(find_model_files(folder.path()).kind == container::gguf);
}

TEST_CASE("two weight sets of one container are refused until one is named", "[format]") {
  temporary_folder const folder;
  SECTION("GGUF") {
    write_file(folder / "a-00001-of-00002.gguf", "");
    write_file(folder / "a-00002-of-00002.gguf", "");
    CHECK(find_model_files(folder.path()).files.front() == folder / "a-00001-of-00002.gguf");
    write_file(folder / "b.gguf", "");
    CHECK_THAT(refusal_of(folder.path()),
               ContainsSubstring("2 sets of gguf weights (a-00001-of-00002.gguf, b.gguf)"));
    CHECK(find_model_files(folder / "b.gguf").files.front() == folder / "b.gguf");
  }
  SECTION("safetensors") {
    write_file(folder / "config.json", "{}");
    write_file(folder / "consolidated.safetensors", "");
    write_file(folder / "model-00001-of-00001.safetensors", "");
    write_file(folder / "model.safetensors.index.json",
               R"({"weight_map":{"t":"model-00001-of-00001.safetensors"}})");
    CHECK_THAT(refusal_of(folder.path()),
               ContainsSubstring("2 sets of safetensors weights (model.safetensors.index.json, "
                                 "consolidated.safetensors)"));
    auto const set = find_model_files(folder / "model-00001-of-00001.safetensors");
    CHECK(set.index == folder / "model.safetensors.index.json");
    CHECK(find_model_files(folder / "model.safetensors.index.json").files == set.files);
    auto const alone = find_model_files(folder / "consolidated.safetensors");
    CHECK(alone.index.empty());
    CHECK(alone.files == std::vector{folder / "consolidated.safetensors"});
  }
}

TEST_CASE("safetensors shards without an index are found by name, and a missing one is named",
          "[format]") {
  temporary_folder const folder;
  write_file(folder / "m-00001-of-00003.safetensors", "");
  write_file(folder / "m-00003-of-00003.safetensors", "");
  CHECK_THAT(refusal_of(folder / "m-00003-of-00003.safetensors"),
             ContainsSubstring("m-00002-of-00003.safetensors: shard 2 of 3 is missing"));
  write_file(folder / "m-00002-of-00003.safetensors", "");
  CHECK(find_model_files(folder / "m-00003-of-00003.safetensors").files.size() == 3);
  CHECK(find_model_files(folder.path()).files.size() == 3);
}

TEST_CASE("an index that is none, or that points out of its folder, is refused", "[format]") {
  temporary_folder const folder;
  auto const index = folder / "model.safetensors.index.json";
  write_file(index, "{}");
  CHECK_THAT(refusal_of(folder.path() / "model.safetensors.index.json"),
             ContainsSubstring("no object `weight_map`"));
  write_file(index, R"({"weight_map":{}})");
  CHECK_THAT(refusal_of(index), ContainsSubstring("lists no tensor"));
  for (char const* const file :
       {"\"../model.safetensors\"", "\"/etc/passwd\"", "\"\"", "\"..\"", "7", "\"a\\u0000b\""}) {
    write_file(index, std::string{R"({"weight_map":{"t":)"} + file + "}}");
    CHECK_THAT(refusal_of(index), ContainsSubstring("not the name of a file in the same folder"));
  }
  write_file(index, R"({"weight_map":{"t":"a.safetensors","t":"b.safetensors"}})");
  CHECK_THAT(refusal_of(index), ContainsSubstring("`t` occurs twice"));
}

TEST_CASE("a path that is no model is refused", "[format]") {
  temporary_folder const folder;
  CHECK_THAT(refusal_of(folder.path()), ContainsSubstring("no .gguf and no .safetensors file"));
  CHECK_THAT(refusal<terrace::io_error>([&] { (void)find_model_files(folder / "none.gguf"); }),
             ContainsSubstring("there is no such file or folder"));
}

TEST_CASE("a pipe in place of a file is refused without waiting for it", "[format]") {
  temporary_folder const folder;
  REQUIRE(mkfifo((folder / "model.gguf").c_str(), 0600) == 0);
  CHECK_THAT(refusal([&] { terrace::format::file_source const source{folder / "model.gguf"}; }),
             ContainsSubstring("not a regular file"));
}
