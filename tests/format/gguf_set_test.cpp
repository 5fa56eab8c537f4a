// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/gguf_set.hpp>
#include <terrace/format/shard_name.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using format_test::raw;
using format_test::raw_gguf;
using format_test::raw_text;
using format_test::read_file;
using format_test::refusal;
using format_test::temporary_folder;
using format_test::write_file;
using terrace::format::read_gguf_set;
using type = terrace::format::gguf_value_type;

namespace {

/// Shard `number` (from 0) of `count` with tensors of the given names.
raw_gguf shard(unsigned number, unsigned count, int total, std::vector<std::string> const& names) {
  raw_gguf file;
  file.key("split.no", type::u16, raw(static_cast<std::uint16_t>(number)));
  file.key("split.count", type::u16, raw(static_cast<std::uint16_t>(count)));
  file.key("split.tensors.count", type::i32, raw(std::int32_t{total}));
  for (std::size_t i = 0; i < names.size(); ++i) {
    file.tensors.push_back({names[i], {8}, 0, 32 * i});
  }
  file.data = std::string(32 * names.size(), '\0');
  return file;
}
std::string name_of(unsigned number, unsigned count = 3) {
  return terrace::format::shard_file_name({"m", number, count}, number, ".gguf");
}
/// Three good shards with two tensors each.
void write_good(temporary_folder const& folder) {
  write_file(folder / name_of(1), shard(0, 3, 6, {"a", "b"}).bytes());
  write_file(folder / name_of(2), shard(1, 3, 6, {"c", "d"}).bytes());
  write_file(folder / name_of(3), shard(2, 3, 6, {"e", "f"}).bytes());
}
std::string refusal_of(temporary_folder const& folder, unsigned named = 1) {
  return refusal([&] { (void)read_gguf_set(folder / name_of(named)); });
}

}  // namespace

TEST_CASE("shard names are taken apart and put together", "[format]") {
  auto const name = terrace::format::parse_shard_name("a-b-00002-of-00005.gguf", ".gguf");
  REQUIRE(name);
  CHECK(name->prefix == "a-b");
  CHECK(name->number == 2);
  CHECK(name->count == 5);
  CHECK(terrace::format::shard_file_name(*name, 3, ".gguf") == "a-b-00003-of-00005.gguf");
  for (char const* const wrong : {"model.gguf",
                                  "m-00000-of-00005.gguf",
                                  "m-00006-of-00005.gguf",
                                  "m-0001-of-00005.gguf",
                                  "m-00001-of-00005.safetensors",
                                  "m-0000x-of-00005.gguf",
                                  "m_00001-of-00005.gguf",
                                  ".gguf"}) {
    CHECK_FALSE(terrace::format::parse_shard_name(wrong, ".gguf"));
  }
}

TEST_CASE("any shard finds the others", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  for (unsigned const named : {1U, 2U, 3U}) {
    auto const set = read_gguf_set(folder / name_of(named));
    REQUIRE(set.headers.size() == 3);
    CHECK(set.files[0].filename() == name_of(1));
    CHECK(set.headers[2].tensors[1].name == "f");
  }
}

TEST_CASE("a shard without tensors is legal", "[format]") {
  temporary_folder const folder;
  write_file(folder / name_of(1), shard(0, 3, 2, {}).bytes());
  write_file(folder / name_of(2), shard(1, 3, 2, {"a", "b"}).bytes());
  write_file(folder / name_of(3), shard(2, 3, 2, {}).header());
  CHECK(read_gguf_set(folder / name_of(3)).headers[1].tensors.size() == 2);
}

TEST_CASE("a missing shard is named", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  std::filesystem::remove(folder / name_of(2));
  CHECK_THAT(refusal_of(folder),
             ContainsSubstring("m-00002-of-00003.gguf: shard 2 of 3 is missing"));
}

TEST_CASE("a shard cut off in its header or in its last tensor is refused", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  auto const bytes = read_file(folder / name_of(3));
  write_file(folder / name_of(3), bytes.substr(0, 150));
  CHECK_THAT(refusal_of(folder),
             ContainsSubstring("m-00003-of-00003.gguf: the file ends at byte 150"));
  write_file(folder / name_of(3), bytes.substr(0, bytes.size() - 1));
  CHECK_THAT(refusal_of(folder),
             ContainsSubstring("m-00003-of-00003.gguf: tensor `f` needs 32 bytes"));
}

TEST_CASE("shards joined with cat are refused, under any name", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  std::string joined;
  for (unsigned const number : {1U, 2U, 3U}) { joined += read_file(folder / name_of(number)); }
  write_file(folder / "joined.gguf", joined);
  CHECK_THAT(refusal([&] { (void)read_gguf_set(folder / "joined.gguf"); }),
             ContainsSubstring("second GGUF file"));
  write_file(folder / name_of(1), joined);
  CHECK_THAT(refusal_of(folder, 2), ContainsSubstring("second GGUF file"));
}

TEST_CASE("a tensor count one too low or too high is refused", "[format]") {
  for (int const total : {5, 7}) {
    temporary_folder const folder;
    write_good(folder);
    write_file(folder / name_of(1), shard(0, 3, total, {"a", "b"}).bytes());
    CHECK_THAT(refusal_of(folder),
               ContainsSubstring("`split.tensors.count` is " + std::to_string(total) +
                                 " but the 3 shards hold 6"));
  }
}

TEST_CASE("a shard out of place is refused", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  SECTION("two shards swapped") {
    std::filesystem::rename(folder / name_of(2), folder / "x");
    std::filesystem::rename(folder / name_of(3), folder / name_of(2));
    std::filesystem::rename(folder / "x", folder / name_of(3));
    CHECK_THAT(refusal_of(folder), ContainsSubstring("says it is shard 2 of 3"));
  }
  SECTION("a shard of another split") {
    write_file(folder / name_of(2), shard(1, 4, 6, {"c", "d"}).bytes());
    CHECK_THAT(refusal_of(folder), ContainsSubstring("says it is shard 1 of 4"));
  }
  SECTION("a whole model in place of a shard") {
    write_file(folder / name_of(2), raw_gguf{}.bytes());
    CHECK_THAT(refusal_of(folder),
               ContainsSubstring("m-00002-of-00003.gguf: the key `split.count` is missing"));
  }
  SECTION("a shard under a name of its own") {
    std::filesystem::rename(folder / name_of(1), folder / "model.gguf");
    CHECK_THAT(refusal([&] { (void)read_gguf_set(folder / "model.gguf"); }),
               ContainsSubstring("one of 3 shards"));
  }
  SECTION("a shard whose name gives another count") {
    std::filesystem::rename(folder / name_of(1), folder / name_of(1, 4));
    CHECK_THAT(refusal([&] { (void)read_gguf_set(folder / name_of(1, 4)); }),
               ContainsSubstring("one of 3 shards"));
  }
}

TEST_CASE("a tensor in two shards is refused", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  write_file(folder / name_of(3), shard(2, 3, 6, {"e", "a"}).bytes());
  CHECK_THAT(refusal_of(folder), ContainsSubstring("tensor `a` is also in m-00001-of-00003.gguf"));
}

TEST_CASE("keys may repeat between shards with the same value only", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  auto lead = shard(0, 3, 6, {"a", "b"});
  lead.key("general.architecture", type::string, raw_text("llama"));
  auto other = shard(1, 3, 6, {"c", "d"});
  write_file(folder / name_of(1), lead.bytes());
  SECTION("the same") {
    other.key("general.architecture", type::string, raw_text("llama"));
    write_file(folder / name_of(2), other.bytes());
    CHECK(read_gguf_set(folder / name_of(2)).meta.get_string("general.architecture") == "llama");
  }
  SECTION("another") {
    other.key("general.architecture", type::string, raw_text("gpt2"));
    write_file(folder / name_of(2), other.bytes());
    CHECK_THAT(refusal_of(folder), ContainsSubstring("`general.architecture` has another value"));
  }
}

TEST_CASE("shards may differ in alignment", "[format]") {
  temporary_folder const folder;
  write_good(folder);
  auto other = shard(1, 3, 6, {"c", "d"});
  other.alignment = 4096;
  other.key("general.alignment", type::u32, raw(4096U));
  other.tensors[1].offset = 4096;
  other.data = std::string(4096 + 32, '\0');
  write_file(folder / name_of(2), other.bytes());
  CHECK(read_gguf_set(folder / name_of(1)).headers[1].tensors[1].offset == 2 * 4096);
}
