// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/safetensors.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <string>

using Catch::Matchers::ContainsSubstring;
using format_test::parse_safetensors;
using format_test::raw;
using format_test::refusal;
using format_test::safetensors_bytes;

namespace {

std::string refusal_of(std::string const& header, std::size_t data_bytes = 16) {
  auto const bytes = safetensors_bytes(header, std::string(data_bytes, '\0'));
  return refusal([&] { parse_safetensors(bytes); });
}
std::string tensor(std::string const& fields) { return "{\"t\":{" + fields + "}}"; }

}  // namespace

TEST_CASE("tensors come in the order of their data with offsets from the start of the file",
          "[format]") {
  std::string const header =
      R"({"b":{"dtype":"BF16","shape":[2,4],"data_offsets":[4,20]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )";
  auto const file = parse_safetensors(safetensors_bytes(header, std::string(20, '\0')));
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "a");
  CHECK(file.tensors[0].shape.empty());
  CHECK(file.tensors[1].offset == 8 + header.size() + 4);
  CHECK(file.tensors[1].bytes == 16);
  CHECK(file.tensors[1].dtype == terrace::format::safetensors_dtype::bf16);
}

TEST_CASE("metadata may be absent, empty, null or strings", "[format]") {
  std::string const metadata = GENERATE(as<std::string>{},
                                        "",
                                        R"("__metadata__":{},)",
                                        R"("__metadata__":null,)",
                                        R"("__metadata__":{"format":"pt"},)");
  auto const bytes = safetensors_bytes(
      "{" + metadata + R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  CHECK(parse_safetensors(bytes).tensors.size() == 1);
}

TEST_CASE("a file without tensors and an empty tensor are legal", "[format]") {
  CHECK(parse_safetensors(safetensors_bytes("{}", "")).tensors.empty());
  auto const bytes =
      safetensors_bytes(tensor(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,0])"), "");
  CHECK(parse_safetensors(bytes).tensors[0].bytes == 0);
}

TEST_CASE("header lengths that cannot be are refused", "[format]") {
  CHECK_THAT(refusal([] { parse_safetensors(""); }), ContainsSubstring("too short"));
  CHECK_THAT(refusal([] { parse_safetensors("1234567"); }), ContainsSubstring("too short"));
  CHECK_THAT(refusal([] { parse_safetensors(raw(std::uint64_t{3}) + "{}"); }),
             ContainsSubstring("claims 3 bytes but the file has only 10"));
  std::uint64_t const length = GENERATE(100'000'001ULL, 1ULL << 40U, ~0ULL, ~0ULL - 7);
  CHECK_THAT(refusal([&] { parse_safetensors(raw(length) + "{}"); }),
             ContainsSubstring("claims " + std::to_string(length) + " bytes, more than"));
}

TEST_CASE("headers that are not the JSON of the format are refused", "[format]") {
  CHECK_THAT(refusal_of("{"), ContainsSubstring("not valid JSON"));
  CHECK_THAT(refusal_of("{}x"), ContainsSubstring("not valid JSON"));
  CHECK_THAT(refusal_of("{\"\xFF\":1}"), ContainsSubstring("not valid JSON"));
  CHECK_THAT(refusal_of("[]"), ContainsSubstring("not a JSON object"));
  CHECK_THAT(refusal_of(R"({"t":3})"), ContainsSubstring("`t` is not described by an object"));
  CHECK_THAT(refusal_of(R"({"__metadata__":[]})"), ContainsSubstring("__metadata__"));
  CHECK_THAT(refusal_of(R"({"__metadata__":{"a":1}})"), ContainsSubstring("__metadata__"));
  CHECK_THAT(refusal_of(std::string(100'000, '[')), ContainsSubstring("nested deeper"));
  CHECK(refusal_of("{\"" + std::string(100'000, 'x')).size() < 300);
}

TEST_CASE("a key that occurs twice is refused at any depth", "[format]") {
  std::string const one = R"("t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  CHECK_THAT(refusal_of("{" + one + "," + one + "}"), ContainsSubstring("`t` occurs twice"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16])")),
             ContainsSubstring("`shape` occurs twice"));
}

TEST_CASE("tensors with missing or malformed fields are refused", "[format]") {
  CHECK_THAT(refusal_of(tensor(R"("shape":[4],"data_offsets":[0,16])")),
             ContainsSubstring("has no `dtype`"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":"F32","data_offsets":[0,16])")),
             ContainsSubstring("has no `shape`"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":"F32","shape":[4])")),
             ContainsSubstring("has no `data_offsets`"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":7,"shape":[4],"data_offsets":[0,16])")),
             ContainsSubstring("not a string"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":"Q9","shape":[4],"data_offsets":[0,16])")),
             ContainsSubstring("dtype `Q9`"));
  std::string const entry = GENERATE("-4", "4.0", "\"4\"", "null", "1e400", "99999999999999999999");
  CHECK_FALSE(
      refusal_of(tensor(R"("dtype":"F32","shape":[)" + entry + R"(],"data_offsets":[0,16])"))
          .empty());
  CHECK_FALSE(
      refusal_of(tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,)" + entry + "]")).empty());
}

TEST_CASE("data ranges that cannot be are refused", "[format]") {
  auto const with = [](std::string const& range) {
    return refusal_of(tensor(R"("dtype":"F32","shape":[4],"data_offsets":)" + range));
  };
  CHECK_THAT(with("[0]"), ContainsSubstring("not a begin and an end"));
  CHECK_THAT(with("[0,16,32]"), ContainsSubstring("not a begin and an end"));
  CHECK_THAT(with("[16,0]"), ContainsSubstring("not a begin and an end"));
  CHECK_THAT(with("[16,32]"), ContainsSubstring("ends at byte 32 of a data section of 16 bytes"));
  CHECK_THAT(with("[0,18446744073709551615]"), ContainsSubstring("cut off or damaged"));
  CHECK_THAT(with("[0,12]"), ContainsSubstring("needs 16 bytes but `data_offsets` span 12"));
}

TEST_CASE("shapes whose sizes wrap are refused", "[format]") {
  CHECK_THAT(
      refusal_of(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
                 0),
      ContainsSubstring("does not fit"));
  CHECK_THAT(
      refusal_of(tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16])")),
      ContainsSubstring("does not fit"));
  CHECK_THAT(refusal_of(tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1),
             ContainsSubstring("needs 1 bytes"));
}

TEST_CASE("every byte belongs to exactly one tensor", "[format]") {
  auto const two = [](std::string const& a, std::string const& b) {
    return R"({"a":{"dtype":"U8","shape":[8],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[8],"data_offsets":)" + b + "}}";
  };
  CHECK_THAT(refusal_of(two("[0,8]", "[4,12]"), 12),
             ContainsSubstring("`b` overlaps the tensor before it by 4 bytes"));
  CHECK_THAT(refusal_of(two("[0,8]", "[0,8]"), 8), ContainsSubstring("overlaps"));
  CHECK_THAT(refusal_of(two("[0,8]", "[10,18]"), 18), ContainsSubstring("belong to no tensor"));
  CHECK_THAT(refusal_of(two("[4,12]", "[12,20]"), 20), ContainsSubstring("belong to no tensor"));
  CHECK_THAT(refusal_of(two("[0,8]", "[8,16]"), 17), ContainsSubstring("belong to no tensor"));
}
