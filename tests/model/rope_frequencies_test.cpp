// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/metadata.hpp>
#include <terrace/model/rope_frequencies.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>

namespace {

using namespace terrace::model;
using Catch::Matchers::WithinRel;

rope_scaling yarn(double factor, double beta_fast) {
  return {.type = rope_scaling::kind::yarn,
          .factor = factor,
          .original_context = 4096,
          .beta_fast = beta_fast,
          .beta_slow = 1,
          .log_multiplier = 0.1};
}

}  // namespace

TEST_CASE("YaRN frequencies of the Kimi K2 shapes equal independently computed ones", "[model]") {
  struct row {
    double factor, beta_fast, f8, f9, f12, f16, f19, f20, f31;
  };
  // 64 rotated dimensions, base 50000, original context 4096.
  for (auto const& want : {row{32,
                               1,
                               6.687403e-2,
                               4.768861e-2,
                               1.729363e-2,
                               4.472136e-3,
                               1.621760e-3,
                               3.614047e-5,
                               8.764413e-7},
                           row{64,
                               1,
                               6.687403e-2,
                               4.768861e-2,
                               1.729363e-2,
                               4.472136e-3,
                               1.621760e-3,
                               1.807023e-5,
                               4.382206e-7},
                           row{64,
                               32,
                               6.687403e-2,
                               4.377666e-2,
                               1.161916e-2,
                               1.537297e-3,
                               1.583750e-4,
                               1.807023e-5,
                               4.382206e-7}}) {
    auto const got = make_frequencies(64, 50000, yarn(want.factor, want.beta_fast)).per_pair;
    REQUIRE(got.size() == 32);
    CHECK_THAT(got[8], WithinRel(want.f8, 1e-6));
    CHECK_THAT(got[9], WithinRel(want.f9, 1e-6));
    CHECK_THAT(got[12], WithinRel(want.f12, 1e-6));
    CHECK_THAT(got[16], WithinRel(want.f16, 1e-6));
    CHECK_THAT(got[19], WithinRel(want.f19, 1e-6));
    CHECK_THAT(got[20], WithinRel(want.f20, 1e-6));
    CHECK_THAT(got[31], WithinRel(want.f31, 1e-6));
  }
}

TEST_CASE("YaRN's magnitude gives the published attention scales", "[model]") {
  auto const scale = [](double factor) {
    double const m = yarn_magnitude(yarn(factor, 1));
    return m * m / std::sqrt(192.0);
  };
  CHECK_THAT(scale(32), WithinRel(0.1308608, 1e-6));
  CHECK_THAT(scale(64), WithinRel(0.1446796, 1e-6));
  CHECK(yarn_magnitude({}) == 1);
}

TEST_CASE(
    "Llama 3.1 scaling keeps short wavelengths, divides long ones by the factor and blends between",
    "[model]") {
  rope_scaling const scaling{
      .type = rope_scaling::kind::llama3, .factor = 8, .original_context = 8192};
  auto const plain = make_frequencies(128, 500000, {}).per_pair;
  auto const scaled = make_frequencies(128, 500000, scaling).per_pair;
  auto const divisor = [&](std::size_t i) { return static_cast<double>(plain[i]) / scaled[i]; };
  CHECK_THAT(divisor(28), WithinRel(1.0, 1e-6));
  CHECK_THAT(divisor(29), WithinRel(1.20748, 1e-5));
  CHECK_THAT(divisor(31), WithinRel(2.02631, 1e-5));
  CHECK_THAT(divisor(34), WithinRel(5.25733, 1e-5));
  CHECK_THAT(divisor(35), WithinRel(8.0, 1e-6));
  CHECK_THAT(divisor(63), WithinRel(8.0, 1e-6));
}

TEST_CASE("an unknown or senseless rope scaling is refused", "[model]") {
  terrace::metadata meta{"a.gguf"};
  CHECK(read_scaling(meta, "llama").type == rope_scaling::kind::none);
  meta.set("llama.rope.scaling.type", std::string{"linear"});
  CHECK_THROWS_AS(read_scaling(meta, "llama"), terrace::not_supported);
  meta.set("llama.rope.scaling.type", std::string{"yarn"});
  meta.set("llama.rope.scaling.factor", 4.0);
  CHECK_THROWS_AS(read_scaling(meta, "llama"), terrace::format_error);
  meta.set("llama.rope.scaling.original_context_length", std::uint64_t{4096});
  CHECK(read_scaling(meta, "llama").factor == 4);
}
