// SPDX-License-Identifier: Apache-2.0
#include <terrace/quant/iq_grids.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace quant = terrace::quant;

namespace {

/// FIPS 180-4. The round constants are the fractions of the cube roots of the first primes; written
/// out in hexadecimal as the standard does.
std::string sha256(std::vector<std::uint8_t> message) {
  static constexpr std::array<std::uint32_t, 64> round_constants{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  std::array<std::uint32_t, 8> hash{0x6a09e667,
                                    0xbb67ae85,
                                    0x3c6ef372,
                                    0xa54ff53a,
                                    0x510e527f,
                                    0x9b05688c,
                                    0x1f83d9ab,
                                    0x5be0cd19};
  std::uint64_t const bits = message.size() * 8;
  message.push_back(0x80);
  while (message.size() % 64 != 56) { message.push_back(0); }
  for (int byte = 7; byte >= 0; --byte) {
    message.push_back(static_cast<std::uint8_t>(bits >> (8 * byte)));
  }
  for (std::size_t chunk = 0; chunk < message.size(); chunk += 64) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 64; ++i) {
      if (i < 16) {
        for (std::size_t b = 0; b < 4; ++b) { w[i] = w[i] << 8U | message[chunk + 4 * i + b]; }
        continue;
      }
      std::uint32_t const a = w[i - 15];
      std::uint32_t const b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
    }
    auto s = hash;
    for (std::size_t i = 0; i < 64; ++i) {
      std::uint32_t const e = s[4];
      std::uint32_t const a = s[0];
      std::uint32_t const first = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & s[5]) ^ (~e & s[6])) + round_constants[i] + w[i];
      std::uint32_t const second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                                   ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) { hash[i] += s[i]; }
  }
  std::string text;
  for (std::uint32_t const word : hash) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", word);
    text += digits;
  }
  return text;
}

/// The canonical digest of a codebook: over its codes as little-endian 16-bit numbers.
template <class Row, std::size_t Rows, std::size_t Levels>
std::string digest(quant::codebook<Row, Rows> const& grid,
                   std::array<int, Levels> const& magnitudes) {
  std::vector<std::uint8_t> bytes;
  for (Row const row : grid) {
    unsigned code = 0;
    for (unsigned k = 0; k < sizeof(Row); ++k) {
      auto const level = std::find(
          magnitudes.begin(), magnitudes.end(), static_cast<std::int8_t>(row >> (8U * k)));
      REQUIRE(level != magnitudes.end());
      unsigned const bits = sizeof(Row) == 8 ? 2 : 3;
      code |= static_cast<unsigned>(level - magnitudes.begin()) << (bits * k);
    }
    bytes.push_back(static_cast<std::uint8_t>(code));
    bytes.push_back(static_cast<std::uint8_t>(code >> 8U));
  }
  return sha256(bytes);
}

}  // namespace

TEST_CASE("the digest used below is SHA-256", "[quant]") {
  CHECK(sha256({'a', 'b', 'c'}) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("the codebooks have their canonical digests", "[quant]") {
  std::array const two_bit{8, 25, 43};
  CHECK(digest(quant::iq2_xxs_grid, two_bit) ==
        "915952ebc4af8ddba8113583ca1316fc818843f7b825bbf1a25ae1c39bf0e16d");
  CHECK(digest(quant::iq2_xs_grid, two_bit) ==
        "f66435966ca8d64e9e4a6e3c91e64afcf9015e700ec85962f527283ebae207b9");
  CHECK(digest(quant::iq2_s_grid, two_bit) ==
        "e6e75e121b65e8afa5c1f92b71463cfbe217b83893f438acde22fd5db06a43f7");
  CHECK(digest(quant::iq3_xxs_grid, std::array{4, 12, 20, 28, 36, 44, 52, 62}) ==
        "c9678803c61b2210fbd8cbbb3f965a835409cd7d88a04d086d236261bd221d11");
  CHECK(digest(quant::iq3_s_grid, std::array{1, 3, 5, 7, 9, 11, 13, 15}) ==
        "353274c58dd7d8dc5ee960dc8fc54ff9164eaf2b49206b841cd49415cf393f81");
  CHECK(digest(quant::iq1_s_grid, std::array{0, 1, 2}) ==
        "e9ffebfc997ad6023063a667c0bf4eedd8ebf7f56b3da399cbc7d1b1f7ea52c6");
}

TEST_CASE("the eighth sign makes the number of minus signs even", "[quant]") {
  for (unsigned seven = 0; seven < 128; ++seven) {
    unsigned const signs = quant::even_signs(seven);
    CHECK((signs & 127U) == seven);
    CHECK(signs < 256);
    CHECK(std::popcount(signs) % 2 == 0);
  }
}
