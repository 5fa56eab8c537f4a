// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/gguf.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using format_test::parse_gguf;
using format_test::raw;
using format_test::raw_gguf;
using format_test::raw_text;
using format_test::refusal;
using type = terrace::format::gguf_value_type;

namespace {

/// One f32 tensor `t` of 4 elements and its data, padded to 32 bytes.
raw_gguf small() {
  raw_gguf file;
  file.tensors = {{}};
  file.data = std::string(32, '\0');
  return file;
}
std::string refusal_of(raw_gguf const& file) {
  auto const bytes = file.bytes();
  return refusal([&] { parse_gguf(bytes); });
}

}  // namespace

TEST_CASE("every scalar value type is read", "[format]") {
  raw_gguf file;
  file.key("u8", type::u8, raw(std::uint8_t{200})).key("i8", type::i8, raw(std::int8_t{-100}));
  file.key("u16", type::u16, raw(std::uint16_t{60'000}))
      .key("i16", type::i16, raw(std::int16_t{-30'000}));
  file.key("u32", type::u32, raw(std::uint32_t{4'000'000'000}))
      .key("i32", type::i32, raw(std::int32_t{-2'000'000'000}));
  file.key("u64", type::u64, raw(~std::uint64_t{0}));
  file.key("i64", type::i64, raw(std::numeric_limits<std::int64_t>::min()));
  file.key("f32", type::f32, raw(0.25F)).key("f64", type::f64, raw(1e300));
  file.key("yes", type::boolean, raw(std::uint8_t{1}))
      .key("text", type::string, raw_text("h\xC3\xA9llo"));
  auto const meta = parse_gguf(file.bytes()).meta;
  CHECK(*meta.find("u8") == terrace::metadata_value{std::uint64_t{200}});
  CHECK(*meta.find("i8") == terrace::metadata_value{std::int64_t{-100}});
  CHECK(*meta.find("u16") == terrace::metadata_value{std::uint64_t{60'000}});
  CHECK(*meta.find("i16") == terrace::metadata_value{std::int64_t{-30'000}});
  CHECK(*meta.find("u32") == terrace::metadata_value{std::uint64_t{4'000'000'000}});
  CHECK(*meta.find("i32") == terrace::metadata_value{std::int64_t{-2'000'000'000}});
  CHECK(*meta.find("u64") == terrace::metadata_value{~std::uint64_t{0}});
  CHECK(*meta.find("i64") == terrace::metadata_value{std::numeric_limits<std::int64_t>::min()});
  CHECK(*meta.find("f32") == terrace::metadata_value{0.25});
  CHECK(*meta.find("f64") == terrace::metadata_value{1e300});
  CHECK(*meta.find("yes") == terrace::metadata_value{true});
  CHECK(*meta.find("text") == terrace::metadata_value{std::string{"h\xC3\xA9llo"}});
}

TEST_CASE("arrays of every element type are read", "[format]") {
  auto const array = [](type element, std::uint64_t count, std::string const& values) {
    return raw(static_cast<std::uint32_t>(element)) + raw(count) + values;
  };
  raw_gguf file;
  file.key("u8", type::array, array(type::u8, 2, "\x01\xFF"));
  file.key("i8", type::array, array(type::i8, 2, "\x01\xFF"));
  file.key("u16", type::array, array(type::u16, 1, raw(std::uint16_t{7})));
  file.key("i16", type::array, array(type::i16, 1, raw(std::int16_t{-7})));
  file.key("u32", type::array, array(type::u32, 1, raw(std::uint32_t{7})));
  file.key("i32", type::array, array(type::i32, 1, raw(std::int32_t{-7})));
  file.key("u64", type::array, array(type::u64, 1, raw(std::uint64_t{7})));
  file.key("i64", type::array, array(type::i64, 1, raw(std::int64_t{-7})));
  file.key("f32", type::array, array(type::f32, 1, raw(0.5F)));
  file.key("f64", type::array, array(type::f64, 1, raw(0.5)));
  file.key("bool", type::array, array(type::boolean, 2, std::string{"\x01\x00", 2}));
  file.key("text", type::array, array(type::string, 2, raw_text("a") + raw_text("")));
  file.key("none", type::array, array(type::string, 0, ""));
  auto const meta = parse_gguf(file.bytes()).meta;
  using terrace::metadata_value;
  CHECK(*meta.find("u8") == metadata_value{std::vector<std::uint64_t>{1, 255}});
  CHECK(*meta.find("i8") == metadata_value{std::vector<std::int64_t>{1, -1}});
  CHECK(*meta.find("u16") == metadata_value{std::vector<std::uint64_t>{7}});
  CHECK(*meta.find("i16") == metadata_value{std::vector<std::int64_t>{-7}});
  CHECK(*meta.find("u32") == metadata_value{std::vector<std::uint64_t>{7}});
  CHECK(*meta.find("i32") == metadata_value{std::vector<std::int64_t>{-7}});
  CHECK(*meta.find("u64") == metadata_value{std::vector<std::uint64_t>{7}});
  CHECK(*meta.find("i64") == metadata_value{std::vector<std::int64_t>{-7}});
  CHECK(*meta.find("f32") == metadata_value{std::vector<double>{0.5}});
  CHECK(*meta.find("f64") == metadata_value{std::vector<double>{0.5}});
  CHECK(*meta.find("bool") == metadata_value{std::vector<bool>{true, false}});
  CHECK(*meta.find("text") == metadata_value{std::vector<std::string>{"a", ""}});
  CHECK(*meta.find("none") == metadata_value{std::vector<std::string>{}});
}

TEST_CASE("tensors get offsets from the start of the file", "[format]") {
  raw_gguf file;
  file.tensors = {{"a", {4, 2}, 0, 0}, {"b", {32, 3}, 8, 32}, {"scalar", {}, 0, 160}};
  file.data = std::string(192, '\0');
  auto const parsed = parse_gguf(file.bytes());
  std::uint64_t const start = file.bytes().size() - file.data.size();
  CHECK(parsed.data_offset == start);
  REQUIRE(parsed.tensors.size() == 3);
  CHECK(parsed.tensors[0].bytes == 32);
  CHECK(parsed.tensors[1].offset == start + 32);
  CHECK(parsed.tensors[1].bytes == 3 * 34);
  CHECK(parsed.tensors[1].type == terrace::quant_type::q8_0);
  CHECK(parsed.tensors[2].bytes == 4);
}

TEST_CASE("alignments other than 32 move the data section", "[format]") {
  std::uint32_t const alignment = GENERATE(1, 8, 64, 4096, 1U << 20U);
  auto file = small();
  file.alignment = alignment;
  file.key("general.alignment", type::u32, raw(alignment));
  auto const parsed = parse_gguf(file.bytes());
  CHECK(parsed.alignment == alignment);
  CHECK(parsed.data_offset % alignment == 0);
  CHECK(parsed.tensors[0].offset == parsed.data_offset);
}

TEST_CASE("version 2 has the same layout", "[format]") {
  auto file = small();
  file.version = 2;
  CHECK(parse_gguf(file.bytes()).tensors.size() == 1);
}

TEST_CASE("padding after the last tensor may be long, short or missing", "[format]") {
  auto file = small();
  file.data = std::string(GENERATE(16, 17, 32, 48, 5000, 3'000'000), '\0');
  CHECK(parse_gguf(file.bytes()).tensors[0].bytes == 16);
}

TEST_CASE("a file without tensors may end right after its header", "[format]") {
  raw_gguf file;
  file.key("k", type::u32, raw(1U));
  CHECK(parse_gguf(file.header()).meta.size() == 1);
  CHECK(parse_gguf(file.bytes()).tensors.empty());
}

TEST_CASE("a file that is no GGUF is refused", "[format]") {
  CHECK_THAT(refusal([] { parse_gguf(""); }), ContainsSubstring("empty"));
  CHECK_THAT(refusal([] { parse_gguf("GG"); }), ContainsSubstring("too short"));
  CHECK_THAT(refusal([] { parse_gguf("PK\x03\x04 and so on"); }),
             ContainsSubstring("not a GGUF file"));
  auto file = small();
  file.version = 1;
  CHECK_THAT(refusal_of(file), ContainsSubstring("version 1"));
  file.version = 4;
  CHECK_THAT(refusal_of(file), ContainsSubstring("version 4"));
  file.version = 0x0300'0000;
  CHECK_THAT(refusal_of(file), ContainsSubstring("big-endian"));
}

TEST_CASE("every prefix of a file is refused, and none of them crashes", "[format]") {
  auto file = small();
  file.key("text", type::string, raw_text("value"));
  file.key("list",
           type::array,
           raw(std::uint32_t{8}) + raw(std::uint64_t{2}) + raw_text("a") + raw_text("b"));
  auto const bytes = file.bytes();
  for (std::size_t length = 0; length < bytes.size() - 16; ++length) {
    CAPTURE(length);
    CHECK_FALSE(refusal([&] { parse_gguf(bytes.substr(0, length)); }).empty());
  }
}

TEST_CASE("counts in the header beyond the file are refused before anything is allocated",
          "[format]") {
  auto file = small();
  file.more_keys = GENERATE(1ULL << 40U, ~0ULL - 1, 1ULL << 63U);
  CHECK_THAT(refusal_of(file), ContainsSubstring("keys but only"));
  std::swap(file.more_keys, file.more_tensors);
  CHECK_THAT(refusal_of(file), ContainsSubstring("tensors but only"));
}

TEST_CASE("string and array lengths beyond the file are refused", "[format]") {
  std::uint64_t const length = GENERATE(1000ULL, 1ULL << 32U, 1ULL << 62U, ~0ULL, ~0ULL - 7);
  auto file = small();
  SECTION("a key") {
    file.keys = {raw(length) + "k"};
    CHECK_THAT(refusal_of(file), ContainsSubstring(std::to_string(length)));
  }
  SECTION("a value") {
    file.key("k", type::string, raw(length));
    CHECK_THAT(refusal_of(file), ContainsSubstring(std::to_string(length)));
  }
  SECTION("an array") {
    auto const element = GENERATE(type::u8, type::f64, type::string, type::boolean);
    file.key("k", type::array, raw(static_cast<std::uint32_t>(element)) + raw(length));
    CHECK_THAT(refusal_of(file), ContainsSubstring("`k` claims " + std::to_string(length)));
  }
  SECTION("a string of an array") {
    file.key("k", type::array, raw(std::uint32_t{8}) + raw(std::uint64_t{1}) + raw(length));
    CHECK_THAT(refusal_of(file), ContainsSubstring(std::to_string(length)));
  }
  SECTION("a tensor name") {
    file.keys = {};
    file.more_tensors = 0;
    auto const bytes = "GGUF" + raw(3U) + raw(std::uint64_t{1}) + raw(std::uint64_t{0}) +
                       raw(length) + std::string(64, 'x');
    CHECK_THAT(refusal([&] { parse_gguf(bytes); }), ContainsSubstring(std::to_string(length)));
  }
}

TEST_CASE("values of unknown types are refused by their number", "[format]") {
  auto file = small();
  SECTION("a scalar") {
    file.key("k", type{13}, raw(1U));
    CHECK_THAT(refusal_of(file), ContainsSubstring("`k` has value type 13"));
  }
  SECTION("an array") {
    file.key("k", type::array, raw(std::uint32_t{99}) + raw(std::uint64_t{1}));
    CHECK_THAT(refusal_of(file), ContainsSubstring("value type 99"));
  }
  SECTION("an array of arrays") {
    file.key("k",
             type::array,
             raw(std::uint32_t{9}) + raw(std::uint64_t{1}) + raw(4U) + raw(std::uint64_t{0}));
    CHECK_THAT(refusal_of(file), ContainsSubstring("array of arrays"));
  }
  SECTION("a truth value that is neither 0 nor 1") {
    file.key("k", type::boolean, "\x02");
    CHECK_THAT(refusal_of(file), ContainsSubstring("`k` is 2 where 0 or 1"));
  }
}

TEST_CASE("a header longer than any model's is refused as such", "[format]") {
  format_test::temporary_folder const folder;
  raw_gguf file;
  std::uint64_t const limit = terrace::format::gguf_header_limit_bytes;
  file.key("k", type::string, raw(limit - 48));  // ends 3 bytes before the limit
  file.more_keys = 1;
  format_test::write_file(folder / "m.gguf", file.header());
  std::filesystem::resize_file(folder / "m.gguf", limit + 4096);
  CHECK_THAT(refusal([&] {
               (void)terrace::format::read_gguf(terrace::format::file_source{folder / "m.gguf"});
             }),
             ContainsSubstring("the header goes on beyond byte 268435456"));
}

TEST_CASE("duplicate keys and tensors are refused", "[format]") {
  auto file = small();
  SECTION("keys") {
    file.key("k", type::u32, raw(1U)).key("k", type::u32, raw(1U));
    CHECK_THAT(refusal_of(file), ContainsSubstring("`k` occurs twice"));
  }
  SECTION("tensors") {
    file.tensors.push_back({"t", {4}, 0, 32});
    file.data.resize(64);
    CHECK_THAT(refusal_of(file), ContainsSubstring("`t` occurs twice"));
  }
}

TEST_CASE("alignments that are no power of two or absurd are refused", "[format]") {
  std::uint32_t const alignment = GENERATE(0U, 3U, 48U, 1U << 30U, 0xFFFF'FFFFU);
  auto file = small();
  file.key("general.alignment", type::u32, raw(alignment));
  CHECK_THAT(refusal_of(file),
             ContainsSubstring("`general.alignment` is " + std::to_string(alignment)));
}

TEST_CASE("an alignment of another type is refused", "[format]") {
  auto file = small();
  file.key("general.alignment", type::string, raw_text("32"));
  CHECK_THAT(refusal_of(file), ContainsSubstring("general.alignment"));
}

TEST_CASE("shapes that make no sense are refused", "[format]") {
  auto file = small();
  SECTION("a dimension of 0") {
    file.tensors[0].dims = {4, 0};
    CHECK_THAT(refusal_of(file), ContainsSubstring("`t` has dimension 1 equal to 0"));
  }
  SECTION("a dimension far beyond the file") {
    file.tensors[0].dims = {(1ULL << 42U) + 1};
    CHECK_THAT(refusal_of(file), ContainsSubstring("17592186044420 bytes"));
  }
  SECTION("a dimension that is negative in the file's signed terms") {
    file.tensors[0].dims = {~0ULL};
    CHECK_THAT(refusal_of(file), ContainsSubstring("does not fit"));
  }
  SECTION("products that wrap to something small") {
    file.tensors[0].dims =
        GENERATE(std::vector<std::uint64_t>{1ULL << 32U, 1ULL << 32U},
                 std::vector<std::uint64_t>{1ULL << 62U, 4},
                 std::vector<std::uint64_t>{1ULL << 61U, 2},
                 std::vector<std::uint64_t>{(1ULL << 32U) + 1, (1ULL << 32U) - 1, 1ULL << 63U, 2});
    CHECK_THAT(refusal_of(file), ContainsSubstring("does not fit"));
  }
  SECTION("nine dimensions") {
    file.tensors[0].dims = std::vector<std::uint64_t>(9, 1);
    CHECK_THAT(refusal_of(file), ContainsSubstring("9 dimensions"));
  }
  SECTION("five dimensions") {
    file.tensors[0].dims = std::vector<std::uint64_t>(5, 1);
    CHECK_THAT(refusal_of(file), ContainsSubstring("5 dimensions"));
  }
  SECTION("rows that are not whole blocks") {
    file.tensors[0] = {"t", {33}, 8, 0};
    CHECK_THAT(refusal_of(file),
               ContainsSubstring("rows of 33 elements, not a multiple of the 32 that q8_0"));
  }
}

TEST_CASE("tensor types that cannot be read are refused by their number, with the reason",
          "[format]") {
  auto file = small();
  SECTION("removed ones") {
    auto const id = GENERATE(4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U);
    file.tensors[0].type = id;
    CHECK_THAT(refusal_of(file),
               ContainsSubstring("type " + std::to_string(id) + ", which was removed"));
  }
  SECTION("those of forks, and of this reader's own numbers for other containers") {
    auto const id = GENERATE(133U, 139U, 202U, 256U, 257U, 258U, 0xFFFF'FFFFU);
    file.tensors[0].type = id;
    CHECK_THAT(refusal_of(file),
               ContainsSubstring("type " + std::to_string(id) + ", which belongs to a fork"));
  }
  SECTION("unknown ones") {
    auto const id = GENERATE(43U, 100U, 132U);
    file.tensors[0].type = id;
    CHECK_THAT(refusal_of(file),
               ContainsSubstring("type " + std::to_string(id) + ", which is not known"));
  }
}

TEST_CASE("tensors outside the file are refused", "[format]") {
  auto file = small();
  SECTION("one that ends behind the end") {
    file.alignment = 1;
    file.key("general.alignment", type::u32, raw(1U));
    file.tensors[0].offset = GENERATE(17ULL, 31ULL, 32ULL, 33ULL);  // end-1 is 31
    CHECK_THAT(refusal_of(file), ContainsSubstring("`t` needs 16 bytes at offset"));
  }
  SECTION("offsets that wrap") {
    file.tensors[0].offset = 0 - GENERATE(32ULL, 64ULL, 4096ULL, 1ULL << 40U);
    CHECK_THAT(refusal_of(file), ContainsSubstring("cut off or damaged"));
  }
  SECTION("an offset off the alignment") {
    file.tensors[0].offset = 16;
    CHECK_THAT(refusal_of(file),
               ContainsSubstring("offset 16, not a multiple of the alignment 32"));
  }
  SECTION("the last byte is missing") {
    auto bytes = file.bytes();
    bytes.resize(bytes.size() - 17);
    CHECK_THAT(refusal([&] { parse_gguf(bytes); }), ContainsSubstring("data section of 15 bytes"));
  }
}

TEST_CASE("overlapping tensors are refused", "[format]") {
  auto file = small();
  file.tensors = {{"a", {16}, 0, 0}, {"b", {4}, 0, 32}};
  file.data = std::string(64, '\0');
  CHECK_THAT(refusal_of(file), ContainsSubstring("`b` overlaps tensor `a`"));
}

TEST_CASE("a second file behind the first is refused as joined shards", "[format]") {
  auto const file = small();
  auto const bytes = file.bytes();
  SECTION("right after the data") {
    CHECK_THAT(refusal([&] { parse_gguf(bytes + bytes); }),
               ContainsSubstring("second GGUF file begins at byte"));
  }
  SECTION("after padding, and after a file that does not pad its end") {
    CHECK_THAT(refusal([&] { parse_gguf(bytes + std::string(4096, '\0') + bytes); }),
               ContainsSubstring("second GGUF"));
    CHECK_THAT(refusal([&] { parse_gguf(bytes.substr(0, bytes.size() - 16) + bytes); }),
               ContainsSubstring("second GGUF"));
  }
  SECTION("after a file of metadata alone") {
    raw_gguf lead;
    lead.key("k", type::u32, raw(1U));
    CHECK_THAT(refusal([&] { parse_gguf(lead.header() + bytes); }),
               ContainsSubstring("second GGUF"));
    CHECK_THAT(refusal([&] { parse_gguf(lead.bytes() + bytes); }),
               ContainsSubstring("second GGUF"));
  }
}

TEST_CASE("other bytes behind the last tensor are refused once they exceed padding", "[format]") {
  auto const bytes = small().bytes();
  CHECK(parse_gguf(bytes + std::string(32, 'x')).tensors.size() == 1);
  CHECK_THAT(refusal([&] { parse_gguf(bytes + std::string(33, 'x')); }),
             ContainsSubstring("49 bytes follow"));
  CHECK_THAT(refusal([&] { parse_gguf(bytes + std::string(4096, '\0') + std::string(33, 'x')); }),
             ContainsSubstring("not padding"));
}

TEST_CASE("a name with control bytes cannot garble the sentence", "[format]") {
  auto file = small();
  file.tensors[0] = {std::string{"a\0\x1b[2J\n", 7} + std::string(1000, 'x'), {0}, 0, 0};
  auto const sentence = refusal_of(file);
  CHECK_THAT(sentence, ContainsSubstring("`a\\x00\\x1b[2J\\x0a"));
  CHECK(sentence.size() < 300);
}
