// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

}  // namespace

TEST_CASE("a block id gives back its kind, layer and index", "[core]") {
  for (auto const kind : {block_kind::dense,
                          block_kind::expert,
                          block_kind::kv_page,
                          block_kind::mla_page,
                          block_kind::recurrent_state}) {
    for (std::uint32_t const layer : {0U, 1U, 91U, 0xFF'FFFFU}) {
      for (std::uint32_t const index : {0U, 895U, 0xFFFF'FFFFU}) {
        auto const id = make_block_id(kind, layer_id{layer}, index);
        CHECK(kind_of(id) == kind);
        CHECK(layer_of(id) == layer_id{layer});
        CHECK(index_of(id) == index);
        CHECK(id != block_id{});
      }
    }
  }
}

TEST_CASE("block ids order by kind, then layer, then index", "[core]") {
  CHECK(expert_block(layer_id{1}, expert_id{9}) < expert_block(layer_id{2}, expert_id{0}));
  CHECK(make_block_id(block_kind::dense, layer_id{9}, 9) < expert_block(layer_id{0}, expert_id{0}));
}

TEST_CASE("a block id is spelled for a reader", "[core]") {
  CHECK(to_string(expert_block(layer_id{3}, expert_id{17})) == "expert 17 of layer 3");
  CHECK(to_string(make_block_id(block_kind::dense, no_layer, 2)) == "dense block 2");
  CHECK_THAT(to_string(block_id{0xFF00'0001'0000'0002U}), StartsWith("block 2"));
}

TEST_CASE("sizes are read with binary units", "[core]") {
  CHECK(parse_size("512") == 512);
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("512B") == 512);
  CHECK(parse_size("64KiB") == 64 * kib);
  CHECK(parse_size("1 KiB") == kib);
  CHECK(parse_size("1.5GiB") == 3 * gib / 2);
  CHECK(parse_size("2G") == 2 * gib);
  CHECK(parse_size("3Mi") == 3 * mib);
  CHECK(parse_size("1TiB") == 1024 * gib);
  CHECK(parse_size("1e3") == 1000);
}

TEST_CASE("what is no size is refused", "[core]") {
  for (std::string_view const text :
       {"",         " ",      "-1",  "-1KiB", "nan",   "NaN",  "inf",    "-inf",
        "infinity", "abc",    "KiB", "1KB",   "1kib",  "1PiB", "1KiBs",  "1K B",
        "0x10",     "1,5GiB", "--1", "+",     "1e400", "1e30", "9.3e18", "9000000000000TiB",
        "1e3e3"}) {
    INFO('`' << text << '`');
    CHECK(parse_size(text) == std::nullopt);
  }
}

TEST_CASE("sizes are written with two digits of a binary unit", "[core]") {
  CHECK(format_size(0) == "0 B");
  CHECK(format_size(1023) == "1023 B");
  CHECK(format_size(1536) == "1.50 KiB");
  CHECK(format_size(24 * gib) == "24.00 GiB");
  CHECK_THAT(format_size(std::numeric_limits<std::uint64_t>::max()), EndsWith("PiB"));
}

TEST_CASE("rounding up reaches the next multiple and keeps multiples", "[core]") {
  CHECK(round_up(0, 64) == 0);
  CHECK(round_up(1, 64) == 64);
  CHECK(round_up(64, 64) == 64);
  CHECK(round_up(65, 48) == 96);
}

TEST_CASE("every encoding has one entry under one name", "[core]") {
  std::set<std::string_view> names;
  std::set<std::uint32_t> ids;
  for (auto const& entry : quant_table) {
    names.insert(entry.name);
    ids.insert(static_cast<std::uint32_t>(entry.type));
    CHECK(entry.block_elements > 0);
    CHECK(entry.block_bytes > 0);
    CHECK(quant_type_named(entry.name) == entry.type);
    CHECK(row_bytes(entry.type, 3 * std::uint64_t{entry.block_elements}) ==
          3 * std::uint64_t{entry.block_bytes});
  }
  CHECK(names.size() == quant_table.size());
  CHECK(ids.size() == quant_table.size());
  CHECK(find_traits(quant_type{4}) == std::nullopt);  // a GGUF id that was removed
  CHECK(quant_type_named("q9_0") == std::nullopt);
  CHECK(name_of(quant_type::q4_k) == "q4_k");
  CHECK(row_bytes(quant_type::q6_k, 1024) == 4 * 210);
}

TEST_CASE("metadata numbers are widened and checked", "[core]") {
  metadata meta{"model.gguf"};
  meta.set("u", std::uint64_t{7});
  meta.set("i", std::int64_t{8});
  meta.set("negative", std::int64_t{-1});
  meta.set("d", 1.5);
  meta.set("huge", std::uint64_t{1} << 40U);
  meta.set("s", std::string{"text"});
  meta.set("b", true);
  CHECK(meta.get_unsigned("u") == 7);
  CHECK(meta.get_unsigned("i") == 8);
  CHECK(meta.get_number("u") == 7.0);
  CHECK(meta.get_number("negative") == -1.0);
  CHECK(meta.get_number("d") == 1.5);
  CHECK(meta.get_string("s") == "text");
  CHECK(meta.try_bool("b") == true);
  CHECK(meta.get_count("u") == 7);
  CHECK(meta.size() == 7);
  for (char const* const key : {"negative", "d", "s", "b"}) {
    CHECK_THROWS_WITH(meta.get_unsigned(key),
                      ContainsSubstring("model.gguf") && ContainsSubstring(key));
  }
  CHECK_THROWS_AS(meta.get_count("huge"), format_error);
  CHECK_THROWS_AS(meta.get_count("u", 8), format_error);
  CHECK_THROWS_AS(meta.get_string("u"), format_error);
  CHECK_THROWS_AS(meta.try_bool("u"), format_error);
}

TEST_CASE("a missing metadata key is nothing when tried and a sentence when needed", "[core]") {
  metadata const meta{"model.gguf"};
  CHECK(meta.try_unsigned("absent") == std::nullopt);
  CHECK(meta.try_string("absent") == std::nullopt);
  CHECK(meta.try_strings("absent") == nullptr);
  CHECK(meta.try_integers("absent") == std::nullopt);
  CHECK(meta.find("absent") == nullptr);
  CHECK_FALSE(meta.contains("absent"));
  CHECK_THROWS_WITH(meta.get_string("absent"),
                    ContainsSubstring("model.gguf") && ContainsSubstring("`absent`"));
}

TEST_CASE(
    "metadata arrays of whole numbers are read whatever their sign, and one number as an array",
    "[core]") {
  metadata meta{"model.gguf"};
  meta.set("signed", std::vector<std::int64_t>{-1, 2});
  meta.set("unsigned", std::vector<std::uint64_t>{3, 4});
  meta.set("one", std::uint64_t{5});
  meta.set("words", std::vector<std::string>{"a", "b"});
  CHECK(meta.try_integers("signed") == std::vector<std::int64_t>{-1, 2});
  CHECK(meta.try_integers("unsigned") == std::vector<std::int64_t>{3, 4});
  CHECK(meta.try_integers("one") == std::vector<std::int64_t>{5});
  REQUIRE(meta.try_strings("words") != nullptr);
  CHECK(meta.try_strings("words")->size() == 2);
  CHECK_THROWS_AS(meta.try_integers("words"), format_error);
  CHECK_THROWS_AS(meta.try_strings("one"), format_error);
}

TEST_CASE("setting a metadata key again replaces its value", "[core]") {
  metadata meta;
  meta.set("k", std::uint64_t{1});
  meta.set("k", std::string{"two"});
  CHECK(meta.get_string("k") == "two");
  CHECK(meta.size() == 1);
}

TEST_CASE("a matrix part starts at its row, with its scales", "[core]") {
  std::array<std::byte, 4096> memory{};
  matrix_layout const layout{.type = quant_type::fp8_e4m3,
                             .rows = 256,
                             .cols = 256,
                             .data_offset = 16,
                             .grid = scale_grid::per_block128,
                             .scale_type = quant_type::f32,
                             .scale_offset = 8};
  auto const whole = view_at(layout, memory.data());
  CHECK(whole.data == memory.data() + 16);
  CHECK(whole.scales == memory.data() + 8);
  auto const part = whole.rows_from(128, 128);
  CHECK(part.rows == 128);
  CHECK(part.data - whole.data == 128 * 256);
  CHECK(part.scales - whole.scales == 2 * 4);

  matrix_view row_scaled = whole;
  row_scaled.grid = scale_grid::per_row;
  CHECK(row_scaled.rows_from(3, 1).scales - whole.scales == 3 * 4);
  matrix_view grouped = whole;
  grouped.grid = scale_grid::per_group32;
  grouped.scale_type = quant_type::bf16;
  CHECK(grouped.rows_from(3, 1).scales - whole.scales == 3 * 8 * 2);
}

TEST_CASE("a block counts the bytes of its extents and not the padding between", "[core]") {
  block_info block;
  block.bytes = 4096;
  block.extents = {{{file_id{0}, 0, 100}, 0}, {{file_id{1}, 512, 50}, 128}};
  CHECK(block.file_bytes() == 150);
}

TEST_CASE("an unknown name is refused with what may be chosen", "[core]") {
  std::array<std::string_view, 3> const names{"a", "b", "c"};
  CHECK_THROWS_WITH(refuse_name("colour", "d", names),
                    ContainsSubstring("no colour named `d`") && ContainsSubstring("a, b or c"));
  CHECK(list_of(std::span{names}.first(1)) == "a");
}

TEST_CASE("a failed internal check says which", "[core]") {
  CHECK_THROWS_WITH([] { TERRACE_ASSERT(1 + 1 == 3); }(), ContainsSubstring("1 + 1 == 3"));
}

}  // namespace terrace::test
