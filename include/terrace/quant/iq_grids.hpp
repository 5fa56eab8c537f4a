// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace::quant {

/// `Rows` vectors of `Width` codebook magnitudes.
template <std::size_t Rows, std::size_t Width>
using codebook = std::array<std::array<std::int8_t, Width>, Rows>;

/// Seven explicit sign bits and the eighth that makes the number of minus signs even; bit k set =
/// element k negative.
[[nodiscard]] constexpr unsigned even_signs(unsigned seven) noexcept {
  return seven | ((static_cast<unsigned>(std::popcount(seven)) & 1U) << 7U);
}

/// y[k] = scale * row[k], negative where bit k of `signs` is set.
template <std::size_t Width>
void write_signed(std::array<std::int8_t, Width> const& row,
                  unsigned signs,
                  float scale,
                  float* y) noexcept {
  for (std::size_t k = 0; k < Width; ++k) {
    float const magnitude = scale * static_cast<float>(row[k]);
    y[k] = ((signs >> k) & 1U) != 0 ? -magnitude : magnitude;
  }
}

/// y[k] = scale * (row[k] + shift)
template <std::size_t Width>
void write_shifted(std::array<std::int8_t, Width> const& row,
                   float shift,
                   float scale,
                   float* y) noexcept {
  for (std::size_t k = 0; k < Width; ++k) { y[k] = scale * (static_cast<float>(row[k]) + shift); }
}

namespace detail {

constexpr unsigned base64_digit(char c) noexcept {
  if (c >= 'A' && c <= 'Z') { return static_cast<unsigned>(c - 'A'); }
  if (c >= 'a' && c <= 'z') { return static_cast<unsigned>(c - 'a') + 26U; }
  if (c >= '0' && c <= '9') { return static_cast<unsigned>(c - '0') + 52U; }
  return c == '+' ? 62U : 63U;
}

/// The codes of a codebook, ascending, from base64 of the LEB128-coded steps between them.
template <std::size_t Rows>
constexpr std::array<std::uint16_t, Rows> unpack_codes(std::string_view text) noexcept {
  std::array<std::uint16_t, Rows> codes{};
  std::size_t row = 0;
  unsigned code = 0;
  unsigned step = 0;
  unsigned step_bits = 0;
  unsigned pending = 0;
  unsigned pending_bits = 0;
  for (char const c : text) {
    pending = ((pending << 6U) | base64_digit(c)) & 0xFFFFU;
    pending_bits += 6U;
    if (pending_bits < 8U || row == Rows) { continue; }
    pending_bits -= 8U;
    unsigned const byte = (pending >> pending_bits) & 255U;
    step |= (byte & 127U) << step_bits;
    step_bits += 7U;
    if (byte >= 128U) { continue; }
    code += step;
    codes[row++] = static_cast<std::uint16_t>(code);
    step = 0;
    step_bits = 0;
  }
  return codes;
}

/// Row r, element k: the magnitude of level (code[r] >> bits * k) mod 2^bits.
template <std::size_t Rows, std::size_t Levels>
constexpr auto unpack_grid(std::string_view text,
                           std::array<std::int8_t, Levels> const& magnitudes) noexcept {
  constexpr unsigned bits = Levels == 4 ? 2 : 3;
  constexpr std::size_t width = Levels == 4 ? 8 : 4;
  auto const codes = unpack_codes<Rows>(text);
  codebook<Rows, width> rows{};
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t k = 0; k < width; ++k) {
      rows[r][k] = magnitudes[(codes[r] >> (bits * k)) & ((1U << bits) - 1U)];
    }
  }
  return rows;
}

inline constexpr std::string_view iq2_xxs_codes =
    "AAIDAwIHAwwCBgIXAwwICQMcAggYXwMMBStEFGgCIGD/AgMMEQMcAgYYIQMMFFwCBhgmIxcReAcwRCDcAgUDDBQZAwwC"
    "Nnw8wgES7QsDDBEfICQMBWsIGDAKJqQBIbsDCBgFJDeYAUqeARbrAwMMMEF/BZsBsQGvCwIIOh0fAqcBH7gBAv8DAwww"
    "FqoBQSOsAvgCGHSwA70rAwwICQMcCA4KIQMMcCBBHwV8DzgOEpgDCBhgGXkS3AGBBAMMMAW7AVgJIcMBS/AKCAkIB2AI"
    "fD5i7QH/AwJ49wFTrAMRCEvcAcgB/AsMMCiYAVXDAUigAwWLAgJyvgW+LwIIN0GCARQo0QHwAwMMBSsgoAFGTnU3IKID"
    "ggKNAvMLDBQcYXVqxQG7AyIijQKwBp8B4g1ONYQB9wGYBLgItAE=";

inline constexpr std::string_view iq2_xs_codes =
    "AAIDAwIHAwIDBwIDAxkDAgMHAgMDCQMcAgMDCQMFB2EDAgMHAgMDAgcDHAIDAwkDDAgZAwxwAgMDCQMMIQMMBSsK9wID"
    "AgMHAgMDCQMcAgMDCQMCCiEDDHACAwMJAwwhAwwRH4EBAwwWGgJC/AICAwMCBwMMBRwDDAgoIApXAwwwQQh3IAhuCuEK"
    "AwIDBwIDAwkDHAIDAwkDDAoXAwxwAgMDCQMMIQMMMBQCawMCCjAgoAMCAwMJAwwhAwUHFByBAQMMMMABFDW4AwMMAi4U"
    "MnoFYesBWNcKAgMDAgcDDCEDDDAgYQMMMAgdmwEiXijZAgMMGRfAAUERR2gZjAHaAggCFjUzGsYBKHgYYgYC9yoDAgMH"
    "AgMDCQMcAgMDAgcDDAUcAwxwAgMDCQMMIQMMMAUdXwMMAhcXwAMCAwMJAwUHIQMMMBRtAwwUHFpmCjoMsQMDDDAFDw6e"
    "AREzDBmbAfwLAgMDCQMMCBkDDDCBAQMMBSsCvgFEZtcCAwwRHyAhIF8IeAiZAUc53wIULQ9JgQEmAsMC/AoDDDAUDiQj"
    "V6QCJkjuAhb6ATAFX90EabsB4QFODp4rAgMDCQMMChcDDDACJgJXAwIKMBEIpwEgYAIeCNkCAwwCAysgKXdEYXNSlgMI"
    "HTUmAiZenAJeCA4S2QoDDDAWLnwiQvIBM/cCBT8MCNEBZwKvAZAEVaMBzAFLoAsCBgIWCnaxAQhNWgIGIlYgoANV0AMz"
    "8gIWAgZ4CFyAAQKiAQJnGQ==";

inline constexpr std::string_view iq2_s_codes =
    "AAIDAwIHAwIDBwIDAxkDAgMHAgMDCQMCAxcCAwMJAwwFBVcDAgMHAgMDCQMcAgMDCQMCAwcFAxkDDAIDDANcAgMDCQMM"
    "ChcDAgMHBSsFBQoO3wIDAgMHAgMDCQMCAxcCAwMCBwMCAwcCAxwDAgMHBQMJA1wCAwMCBwMCAwcFAxkDAgMHAgMDCQMc"
    "AgMDCQMMYQMCAwcFKwUDCQMMIQMM8AICAwMJAwIDBwUFFwMCAwcCAwMJAxwFDxZXAwwCAwMJHwUDCQMMIQ9wEQMOBgIm"
    "SegKAwIDBwIDAwkDAhoCAwMJAwIDBwIDAxkDAgoFAwkDXAIDAwIHAwIDBwIDAxkDAgMHAgMDCQMcAgMDCQNtAwUHBQwD"
    "HAUMAy0DDPACAgMDCQMCAwcFAxkDAgMHAgMDCQMcAgMDCQMMYQMCAwcCAwMJAxwCAwMJAwwhAwxwBQMJAwwhAwwwKtcC"
    "AwIDBwUDCR8CAwMJAwwhA3wCAwMJAwwhAwwZOWIMMBaqCwIDAwkDAgMHBQUXAwwCAw8cCgoWVwMMAgMMHwIDDAMMIQMM"
    "cAoYBgIaDDgCHtkCAwIDBwUDCQMcAgMDCQMMIQMMcAUDCQMMIQMMFhqBAQMMMBmnAwUMAy0DDDogVwMMhQF1GEIkAvcq"
    "AwIDBwIDAwIHAwIaAgMDAgcDAgMHAgMcAwwFAwkDXAIDAwkDAgMHAgMcAwIDBwIDAwkDHAIDAwkDDGEDDAIDAwwcBQMJ"
    "AwwhA/wCAgMDAgcDAgMHAgMDGQMCAwcCAwMJAxwCAwMJAwxhAwIDBwIDAwkDHAIDAwkDDAoXAwxwAgMDCQMMIQMMMCXc"
    "AgMFBwIDAwkDHAIDAwkDDCQMcAIDAwkDDCEDDDAWawMMMMALAgMDCQMCAwcCAwMZAwIDBwIDAwkDHAIDAwkDbQMCAwcC"
    "AwMJAxwCAwMJAwwhAwxwBQMJAwwhAwwZF4EDAwIDBwIDAwkDHAIDAwkDDCEDDHACAwMJAwwhAwwwgQEDDBYawAMCAwMJ"
    "AwwhAwwKJoEBAwwwwAEZbCPZCgMCCgIDAwkDHAUDCQMMJAxwAgMDCQMMIQMMMBlrDDAWS98CBQMJAwwhAwwwgQEDDDAK"
    "HipulAHtAgMMVTNoKpgCX98qAgMDCQMFBwUcAwwCAwMJHwUMA20DBQcCAwMJAxwCAwMJAy0DDBlXBQUHAy0DDLEDAwID"
    "BwIDAwkfAgMDCQMMIQMMcAIDAwkDDCEDDDAKdwMMGRfAAwUMAy0DDFJfAzwlvQE2Aigg3woDBQcCAwMMHAIDAwkDDCED"
    "DHAFDAMtAwwKpwEDDDBm2gICAwMJAwwhAwwwFmsDDDBYCV9GHp0DAwwWGmlXSQm+AvAKBQUKDggXAwxSCJYBJZ0BCBgG"
    "AlgGAh7ZAgMMMEkbXBm4ArkDHnqyATKCAQIWAgZgIg==";

inline constexpr std::string_view iq3_xxs_codes =
    "AAICBQIEAQIHCRkCBAIFAgcEAwIHCwwIAgIFBwIHAgQKBg4EBgECCyMTFAULDAIEBhMQMxcUBAIVDhACBQIHAgUCAgsB"
    "GAIHBwIvAgUCBwciBgIOCQ0QCwQjKAQSEwxNDiACBwIFAgQDCR8CAgMCBwcbBAEIAgcGAQINAQ0UBwQsBCEOGBQKG0UC"
    "CxccBwIHAhUNBQYCDgkLAhsCBQ0VEA8SPQ8TBgYMGx8SFSgVFAsOAgwETRQPARAGER4fJQshDhVNAwIOMhcXCAYQFx8O"
    "IAgpHQsEIwgXTywOMhACDh0gHiUkBkYhJTEoDjICAgESECwKKhsFFg0OFSEQHwISRA==";

inline constexpr std::string_view iq3_s_codes =
    "AAEBAwIBAQECAgIBBAYFAgMCAgIFAgcDAwEBAQIEAQQDAwQCBAcNBAUGAQQCAQMDAwQDBAYDAgICDQMIBgQDAgcCAwYE"
    "Ag0CBAMLBAIDBgYDBg8KAgwCBAUGBAIPBQsDAg4RDwcCAgwCBAUNBBQBAQIEAQICAgECBwMCDgIDCQYBAgMCBAUHAwYH"
    "Ag4GAgoDAgEEBgYDCgMKBwMDAQMGBgEEBREGCwIFAg0CBwQCBBUHAwYHAg8nBAMNAhsCBQIHDAQRBggBAgICAQICAgMC"
    "BAECBwICAwINAQMCAwIGAwQDAwQDBgcYAwMKAgUHAgoECgMEAgMECQIFAgcGDgsGCQMHAwQZAwcFCQ0BCw0IAgUKHAQU"
    "BA0CCwUaBwICAgMHAgIFAgMCCgYIAgIHBQINEAoEAgoGCgIMGQcEBQIEAQkCBAYOCAYFBAcRBgQNBwILBQoKDRMTIAIN"
    "AgsjBAYGBAMDBwcQCgUCAgcGBQYGBBQCBQUECgUPAwYMBQIFAgcEIwISCwEZDAIKIRkRFBgFCwsGGQYEBg4EAwMMBgUC"
    "AgUHCSAGCQoFBg0XBQEPDQUMBgYDDAoMJAwTAjcgAg43AgIMAhUQEAcdFhIGCwUGCAwFDzUODw4DGRQVGykCNQQDCQIM"
    "AgwGEAcLDwIcAwQGAwcRGRgDDhYEBgUYKhAgFyc=";

inline constexpr std::string_view iq1_s_codes =
    "AAIDAwIHBAsCBgIbDAMCDxsCBgILCwIGAloBDAMCAwELHAUDCQMFBwMCAh0MAwIPWwIGAgsLAgYCGwwICwUXAgYCBwQE"
    "BwIGAucCAwIPHAgMBQoBLAgMXAMBAQ8DAg8XBQUGAQMBAQMHAgMDAhcQBAMCBwMBAQNrBSgDDAIDAwgBBQMcDAMF5wIC"
    "BgILCwIGAhsMBQ8bAgYCCwsCBgJbDAMFCwEcDwEEDAMFKAMCAwxbAgYCCwsCBgIbDAgIBBsCAwMCCwsCBgLmCgEDBQsB"
    "HAMMBQMJAwEEKAMCCwRcAwIDBwIDAwkDBRwFBgEBAgEBAwcFHw4DDANtAwIPGwYDCQMDAgoCHwwDAg/cAgUDCwEDAQgF"
    "GwQBAgIHAwEBAwkDAxwFBwQBAwEBBwMBBFkDBQcDAQEDBwIDAwIXAwEBCwECAQEDAQcDAQEDFwICAQMCBgEDAQEDAQYC"
    "A1wDAQEPAQICBwUaAgIBAwIHBAECAQgDAQMBARwECAMPBegCBQ8cAwIDBwUDAgYBAwIDHAwDEWsCAwUHBB0CAQMJAwEB"
    "AwEGBQUfCAEDAwkFA2ANDgIeAgMHAgMDCQUDHAwFBOYKAgYCCwsCAwMCGwwICAQbAgYCCwsCAwMCWwwDBQwdAgUMAwIH"
    "AwEBHwsGAwxcBwIHBAsCBgIbDAUDDBwHAgcECwIGAtsCDwIDDB8BAQMJAwMCDB8MAwUIBGQMDAgXBQMJAwEECQMDIQcE"
    "AQMCBwMCA1wLAgcMHAgMCwEIGwIKCuYCAgYCCwsCBgIbDAMRGwIGAhYCBgJfCAMFDCEDCQMMAwIDHAsGAwsBWwIGAhYC"
    "BgIbDAUDDBsCBgILCwIGAtsqDAUPJAkDAwIHAwIuBQgFWgEDAgMJAwECAgcFAxwDAgcDAQEDAQsDAhcDAgoCAwsBAWMM"
    "AwIPHBEDBQoFIAsR3AIUBBAcAwIHAwEBCwEDAwIXBQMHAgMLAQhYAQMFBwMBAQMHBQUXAwEBAwcBAwEBAgEIAwEBAxkC"
    "AQMJAwEBAwELAwJXBAQLAQMCBwMFFwIDAwgBAQMBAwkDAxkEBQoBDAMC3wIMBAULHQcHBQMJAwIDHAwDAgMMXAQBBAYE"
    "AQMJAwIaBQUHAQIBAQMHAgMBBBwDCQMBAgkDAgNtLgIDDAMCCgUrEdwKAwEBAwkDBQcDBRcFAwkDAQEDDAMeAwwDCAEF"
    "A1wDAQEHAwEBAgEHBQECAhcDAQEDBwEBAgEBAgEBBwMBAQMZAwwDAQEDBwUFVwUMAwUHAx4DBQcDAQEDCQMgCwIDBAEK"
    "4AIBDAMBAQIBCAQDAhcDAQEDAQYBAwEBAgEBBwECAQEDFwgCBwMBAQMIAwEFVwECAQEDBwEBAgEBAwEHAwEBAxcBAQIB"
    "AQIBBwEBAgEBAgEBBgEDAQECAQEXAwEEAQYBAwEBAgEIAwEBA1cBAQICAgEIAwEDAQcBAQIBAQIBGAQBAgEBBgEBAgEB"
    "AgEBBwMBBBkDAQIBAQcEBQgDAQIB2wIBAQMHBQMJCRsDAgcDAQECAQcCAgEdBwcCAwMJCFgBAwUHAwEBAwwcAwEBAwcB"
    "AQIBAQIBAQcDAQEDGAQECAMBAQIBDF8EDQUGBQEDHAMBCAQBAgEJAwMCFwkIAwECAgfkCg8CAwwfDAUBAgIHAwIDGBUP"
    "XAMCAwkDDAEEAxwECAQBAwwBBBoGCAMMBQNoBQMnAQUPAQIIJQwFD+wCAQMBBAcFAxcCAwMCBwMBAQMBBgIDHwEEBwIC"
    "AQECAgcDBVwDAgcEAQMrAQEDBwEDAQEDCAMBAQMdAwEHBAEDAQgDAQJaBwwLBgIBFwUDAgcDAQECAgYFAxgCAwUKAgIB"
    "BwQCBOwCAwwcEQMFBwgcDAcOWwMMBQwDAgMXAQQBAgkDAQEDBwUFGAIGCwwDAQRoBQIpAwUHBQMCCgEEHQ4EAgzaKgIG"
    "AhYCBgIbCwEDAgMMGwIGAgsLAgYCWwwDAgMMHAMFBwIDAQIBCwIDHAQLAgMMWwIGAgsLAgYCJwMFDBsCBgILCwIGAuoC"
    "BSgDDQQFBwMFKwVoCAkDBQwDFwEEAwkDAQEDAQsBAgIXAwIDBwIDAw5rBQMMHAMFAQYFBAEHBQQbDAkK3AICBgILCwIG"
    "AhcEDAMFDAQXAgYCCwsCBgJbAQsDAg8cAwIDBwIDBQcDIREDDFsCBgILCwIGAhsMAwIqAgYCCwsCBgLbCgwFAgEMHAUD"
    "DAMCDwEbDAMCAwxcAwIDBwUDAgcDAgMXBQsBAwEBAwkDHwIMAwMJAwIDXAwDBQwfAgMHAgMDDgMcDwIT2AIDAgoFAw4a"
    "CgcDAQECAQcBAQMfAgwCAQMJCFcFAwIGAQMBAQMIBAQBFwMBAQMHAQECAQECAQEHAwEBAxgEAwkBAgEBAwEGAgMDAlcD"
    "DAUEBwYDHAMBCAEDAQMMAxoCBQEIAgEPAgPcAhEDDBwFCgIDAQQKASAMBQMMXwIDBwIDAwIGAQMCGgIDAwIHAwEBAwkD"
    "AQQXAwwCAwUHBV8QEB8CAwcFAwkkDAMBAeoKAgYCCwsCBgIbDAMCAycCBgILCwIGAlsECAMCAwEsAwgEAwIHAyELAgQD"
    "aQYCBgkJBgIbDAUDDBsCBgILCwIGAu8CDBwDDAQBAwIHBAECARyBAQMHAgMDDgMZAwwDAQEDDAUXAwEBAwkDA20MBQQH"
    "BB8CBAgDAQIIAiQKBQEDCAMC2gICBgIWAgYCJwMCAycCBgILCwIGAlsPBQgEHA8FBQcFAycGagIGAhYCBgInAwIqAgYC"
    "CwsCBgI=";

}  // namespace detail

// The codebooks are format constants: which lattice points they hold was chosen by how often model
// weights use them, so no formula makes them. The values come from ggml (MIT licence); the encoding
// above is ours. Rows ascend by code.

namespace detail {
inline constexpr std::array<std::int8_t, 4> two_bit_levels{8, 25, 43, 0};
inline constexpr std::array<std::int8_t, 8> three_bit_levels{4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<std::int8_t, 8> odd_levels{1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::array<std::int8_t, 4> ternary_levels{-1, 0, 1, 0};
}  // namespace detail

inline constexpr auto iq2_xxs_grid =
    detail::unpack_grid<256>(detail::iq2_xxs_codes, detail::two_bit_levels);
inline constexpr auto iq2_xs_grid =
    detail::unpack_grid<512>(detail::iq2_xs_codes, detail::two_bit_levels);
inline constexpr auto iq2_s_grid =
    detail::unpack_grid<1024>(detail::iq2_s_codes, detail::two_bit_levels);
inline constexpr auto iq3_xxs_grid =
    detail::unpack_grid<256>(detail::iq3_xxs_codes, detail::three_bit_levels);
inline constexpr auto iq3_s_grid =
    detail::unpack_grid<512>(detail::iq3_s_codes, detail::odd_levels);
inline constexpr auto iq1_s_grid =
    detail::unpack_grid<2048>(detail::iq1_s_codes, detail::ternary_levels);  // also iq1_m

}  // namespace terrace::quant
