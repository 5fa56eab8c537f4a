// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/gguf_set.hpp>
#include <terrace/format/gguf_writer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using format_test::parse_gguf;
using format_test::refusal;
using terrace::metadata_value;
using terrace::quant_type;
using terrace::format::gguf_value_type;
using terrace::format::gguf_writer;

namespace {

std::string bytes_of(gguf_writer const& writer) {
  std::ostringstream out;
  writer.write(out);
  return out.str();
}
std::vector<std::byte> counting(std::size_t count, unsigned first = 0) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) { bytes[i] = static_cast<std::byte>(i + first); }
  return bytes;
}

}  // namespace

TEST_CASE("what is written is read back, at any alignment", "[format]") {
  std::uint64_t const alignment = GENERATE(1, 32, 64, 4096);
  gguf_writer writer{alignment};
  writer.set("general.architecture", std::string{"llama"});
  writer.set("flags", std::vector<bool>{true, false});
  writer.set("ids", std::vector<std::int64_t>{-1, 5});
  writer.set("words", std::vector<std::string>{"a", ""});
  writer.set("big", std::uint64_t{1} << 40U);
  writer.set("half", 0.5);
  auto const first = counting(34 * 3), second = counting(12, 7);
  writer.add_tensor("q", quant_type::q8_0, {32, 3}, first);
  writer.add_tensor("f", quant_type::f32, {3}, second);
  auto const bytes = bytes_of(writer);
  auto const file = parse_gguf(bytes);
  CHECK(file.alignment == alignment);
  CHECK(file.meta.get_string("general.architecture") == "llama");
  CHECK(*file.meta.find("flags") == metadata_value{std::vector<bool>{true, false}});
  CHECK(*file.meta.find("ids") == metadata_value{std::vector<std::int64_t>{-1, 5}});
  CHECK(*file.meta.find("words") == metadata_value{std::vector<std::string>{"a", ""}});
  CHECK(file.meta.get_unsigned("big") == std::uint64_t{1} << 40U);
  CHECK(file.meta.get_number("half") == 0.5);
  REQUIRE(file.tensors.size() == 2);
  auto const at =
      std::as_bytes(std::span{bytes}).subspan(file.tensors[1].offset, file.tensors[1].bytes);
  CHECK(std::equal(at.begin(), at.end(), second.begin(), second.end()));
}

TEST_CASE("a layout says where the parts of the written file lie", "[format]") {
  gguf_writer writer{64};
  auto const first = counting(34 * 3), second = counting(12, 7);
  writer.add_tensor("q", quant_type::q8_0, {32, 3}, first);
  writer.add_tensor("f", quant_type::f32, {3}, second);
  auto const layout = writer.layout();
  auto by_parts = layout.head;
  by_parts.resize(layout.bytes, '\0');
  std::memcpy(by_parts.data() + layout.offsets.at(0), first.data(), first.size());
  std::memcpy(by_parts.data() + layout.offsets.at(1), second.data(), second.size());
  CHECK(by_parts == bytes_of(writer));
}

TEST_CASE("a key can be written in every scalar type", "[format]") {
  auto const type = GENERATE(gguf_value_type::u8,
                             gguf_value_type::i8,
                             gguf_value_type::u16,
                             gguf_value_type::i16,
                             gguf_value_type::u32,
                             gguf_value_type::i32,
                             gguf_value_type::u64,
                             gguf_value_type::i64,
                             gguf_value_type::f32,
                             gguf_value_type::f64);
  gguf_writer writer;
  writer.set("one", std::uint64_t{100}, type);
  writer.set("list", std::vector<std::uint64_t>{1, 100}, type);
  auto const meta = parse_gguf(bytes_of(writer)).meta;
  CHECK(meta.get_number("one") == 100.0);
  CHECK(meta.contains("list"));
}

TEST_CASE("a value that does not fit the type asked for is refused", "[format]") {
  gguf_writer writer;
  writer.set("k", std::uint64_t{256}, gguf_value_type::u8);
  CHECK_THAT(refusal<terrace::contract_error>([&] { bytes_of(writer); }),
             ContainsSubstring("`k` does not fit"));
  writer.set("k", std::int64_t{-1}, gguf_value_type::u32);
  CHECK_THAT(refusal<terrace::contract_error>([&] { bytes_of(writer); }),
             ContainsSubstring("`k` does not fit"));
}

TEST_CASE("tensors that cannot be are refused by the writer", "[format]") {
  gguf_writer writer;
  std::vector<std::byte> const data(18);
  auto const add = [&](quant_type type, std::vector<std::uint64_t> dims) {
    return refusal<terrace::contract_error>([&] { writer.add_tensor("t", type, dims, data); });
  };
  CHECK_THAT(add(quant_type::q4_0, {33}), ContainsSubstring("rows of 33"));
  CHECK_THAT(add(quant_type::fp8_e4m3, {32}), ContainsSubstring("cannot be written"));
  writer.add_tensor("t", quant_type::q4_0, {32}, data);
  CHECK_THAT(add(quant_type::q4_0, {32}), ContainsSubstring("a name in use"));
  writer.add_tensor("u", quant_type::q4_0, {64}, data);
  CHECK_THAT(refusal<terrace::contract_error>([&] { bytes_of(writer); }),
             ContainsSubstring("given 18 bytes where its shape needs 36"));
}

TEST_CASE("tensor data may come in pieces", "[format]") {
  gguf_writer writer;
  auto const data = counting(16);
  writer.add_tensor("t", quant_type::f32, {4}, [&](gguf_writer::byte_sink const& sink) {
    sink(std::span{data}.first(5));
    sink(std::span{data}.subspan(5));
  });
  auto const bytes = bytes_of(writer);
  auto const file = parse_gguf(bytes);
  auto const at = std::as_bytes(std::span{bytes}).subspan(file.tensors[0].offset, 16);
  CHECK(std::equal(at.begin(), at.end(), data.begin(), data.end()));
}

TEST_CASE("a split model is read whole, whichever shard is named", "[format]") {
  format_test::temporary_folder const folder;
  bool const metadata_alone = GENERATE(false, true);
  gguf_writer writer{64};
  writer.set("general.architecture", std::string{"llama"});
  std::vector<std::vector<std::byte>> data;
  for (unsigned i = 0; i < 7; ++i) { data.push_back(counting(16, i)); }
  for (unsigned i = 0; i < 7; ++i) {
    writer.add_tensor("t" + std::to_string(i), quant_type::f32, {4}, data[i]);
  }
  auto const files = writer.write_split(folder / "model", 3, metadata_alone);
  REQUIRE(files.size() == 3);
  CHECK(files[1].filename() == "model-00002-of-00003.gguf");
  for (auto const& named : files) {
    auto const set = terrace::format::read_gguf_set(named);
    REQUIRE(set.files == files);
    CHECK(set.headers[0].tensors.empty() == metadata_alone);
    std::size_t total = 0;
    for (auto const& header : set.headers) {
      CHECK(header.alignment == 64);
      total += header.tensors.size();
    }
    CHECK(total == 7);
    CHECK(set.meta.get_string("general.architecture") == "llama");
  }
}

TEST_CASE("a file that cannot be written leaves nothing behind", "[format]") {
  format_test::temporary_folder const folder;
  gguf_writer writer;
  writer.add_tensor("t", quant_type::f32, {4}, [](gguf_writer::byte_sink const&) {
    throw terrace::error{"no data"};
  });
  CHECK(refusal<terrace::error>([&] { writer.write(folder / "model.gguf"); }) == "no data");
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_THAT(refusal<terrace::io_error>([&] { gguf_writer{}.write(folder / "no/model.gguf"); }),
             ContainsSubstring("cannot be written"));
}
