// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace::quant {

/// Rows of codebook elements, signed bytes from the lowest up: 8 a row in 64 bits, or 4 in 32.
template <class Row, std::size_t Rows>
using codebook = std::array<Row, Rows>;

/// Seven explicit sign bits and the eighth that makes the number of minus signs even; bit k set =
/// element k negative.
[[nodiscard]] constexpr unsigned even_signs(unsigned seven) noexcept {
  return seven | ((static_cast<unsigned>(std::popcount(seven)) & 1U) << 7U);
}

/// The row with element k negated where bit k of `signs` is set; all elements are positive before.
[[nodiscard]] constexpr std::uint64_t with_signs(std::uint64_t row, unsigned signs) noexcept {
  constexpr std::uint64_t ones = 0x0101'0101'0101'0101ULL;
  std::uint64_t const bit = (ones * (signs & 255U)) & 0x8040'2010'0804'0201ULL;  // byte k: bit k
  std::uint64_t const negative = ((bit + 127 * ones) >> 7U) & ones;              // byte k: 1 or 0
  return (row ^ 255 * negative) + negative;  // two's complement; no byte carries, none being zero
}

/// Writes a block of 256: y = scale * (element - bias), with one scale for each of `Groups` equal
/// parts.
template <std::size_t Groups>
void write_scaled(std::array<std::uint64_t, 32> const& rows,
                  int bias,
                  std::array<float, Groups> const& scales,
                  float* __restrict y) noexcept {
  static_assert(std::endian::native == std::endian::little);
  auto const elements = std::bit_cast<std::array<std::int8_t, 256>>(rows);
  for (std::size_t k = 0; k < 8; ++k) {  // by 32 whatever the group: compilers unroll 16 to scalars
    float const first = scales[k * Groups / 8];
    float const second = scales[(2 * k + 1) * Groups / 16];
    for (std::size_t i = 0; i < 32; ++i) {
      float const scale = i < 16 ? first : second;
      y[32 * k + i] = scale * static_cast<float>(elements[32 * k + i] - bias);
    }
  }
}

namespace detail {

/// Unpacks a codebook. Its rows, as codes of `Bits` bits an element (element 0 lowest), ascend;
/// `steps` spells the distances between them in digits of 5 bits from the lowest up, '0' + digit,
/// 32 more where another follows. `levels` gives the element of each code.
template <class Row, std::size_t Rows, std::size_t Levels>
constexpr codebook<Row, Rows> unpack(std::string_view steps,
                                     std::array<std::int8_t, Levels> const& levels) noexcept {
  // Two elements at a time: the rows are made while compiling, where every operation counts.
  constexpr unsigned bits = std::bit_width(Levels) - 1U;
  std::array<std::uint16_t, Levels * Levels> pairs{};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = static_cast<std::uint16_t>(static_cast<std::uint8_t>(levels[i % Levels]) |
                                          static_cast<std::uint8_t>(levels[i / Levels]) << 8U);
  }
  codebook<Row, Rows> rows{};
  unsigned code = 0;
  char const* at = steps.data();
  for (Row& row : rows) {
    unsigned digit = static_cast<unsigned>(*at++) - '0';
    code += digit & 31U;
    for (unsigned shift = 5; digit >= 32U; shift += 5U) {
      digit = static_cast<unsigned>(*at++) - '0';
      code += (digit & 31U) << shift;
    }
    for (unsigned pair = 0; pair < sizeof(Row) / 2; ++pair) {
      row |= static_cast<Row>(pairs[(code >> (2U * bits * pair)) % pairs.size()]) << (16U * pair);
    }
  }
  return rows;
}

// The codebooks are format constants: which lattice points they hold was chosen by how often model
// weights use them, so no formula makes them. The values come from ggml (see NOTICE); the spelling
// is ours.
// clang-format off
inline constexpr std::string_view iq2_xxs_steps =
    R"(0233273<262G3<893L28Ho23<5[1T2DX32P1P3o;3<A3L26HQ13<Dl226HV1S1GAh37`1T2P1l:53<DI3<2f1l3l)"
    R"(1R6B]_13<AOP1T1<5[38H`1:V1T5Q1k=8H5T1g1h4Z2n4F[?3<`1Q2o35k4a5_]128j1MO2W5Oh52o?3<`1FZ5Q2)"
    R"(S1\9h;Hd3`=m]53<893L8>:Q13<`3P1Q2O5l3?h1>Bh<8HP3Ii3Bl6Q@3<`15k5h29Q1S6[2`[18987P38l3n1R3)"
    R"(]7o?2h3g7c2\=A8[2l6X6l_1<`1X1h4e2S6X2P=5[82b3nEnm528g1Q2R4DX1a6`?3<5[1P1P5V2^2e3g1P1R=R8)"
    R"(]8c_1<DLQ3e3Z3U6k=R1R1]8`Io4Rg1^2e1T4g7h@hQ1d5)";
inline constexpr std::string_view iq2_xs_steps =
    R"(0233273237233I323723393L2339357Q33237233273L23393<8I3<`323393<Q13<5[1:g;323723393L233932)"
    R"(:Q13<`323393<Q13<AOQ43<FJ2R2l;233273<5L3<8X1P1:g23<`1Q28g3P18^3:Q[1323723393L23393<:G3<`)"
    R"(323393<Q13<`1D2[332:`1P1P=23393<Q1357DLQ43<`1P6De1h=3<2^1Db1j35Q3[7h2gZ1233273<Q13<`1P1Q)"
    R"(33<`18Mk4R1n2X1i:3<IGP6Q2AW2X3I\4j:82Fe1c1JV6X1h3HR362g[5323723393L233273<5L3<`323393<Q1)"
    R"(3<`15Mo23<2GGP>2339357Q13<`1D]33<DLj2V3:j1<a=3<`15?>n4Ac1<Ik4l_123393<8I3<`1Q43<5[12n5T2)"
    R"(V3g:3<AOP1Q1P1o28h38i4W2i1o:D]1?Y2Q4V12S:l[13<`1D>T1S1g2T9V1X2^;Fj7`15o2mBY3k5Q7^2>n\523)"
    R"(393<:G3<`12V12g232:`1A8W5P1P32N8i:3<23[1P1Y1g3T2Q3c3b2f<8Me1V12V1n2l8n28>BiZ13<`1F^1l3R1)"
    R"(R2b7c1g;5o1<8a6W32_5`@e2S5\6[2P]1262F:f3a58]2j226R1f2P1P=e2`>c1b;F26h38l2P42R52W3I)";
inline constexpr std::string_view iq2_s_steps =
    R"(0233273237233I32372339323G23393<55g2323723393L2339323753I3<23<3l223393<:G32375[155:>o:32)"
    R"(372339323G23327323723L32375393l223327323753I323723393L23393<Q332375[15393<Q13<`;23393237)"
    R"(55G323723393L5?Fg23<2339O5393<Q1?`3A3>62V1Y2X[13237233932J23393237233I32:5393l2233273237)"
    R"(233I323723393L23393]33575<3L5<3]13<`;2339323753I323723393L23393<Q3323723393L23393<Q13<`3)"
    R"(5393<Q13<`1Z1g:3237539O23393<Q13l323393<Q13<Ii1R3<`1FZ]12339323755G3<23?L::Fg23<23<O23<3)"
    R"(<Q13<`3:H62J<h12Ni:32375393L23393<Q13<`35393<Q13<FJQ43<`1IW=5<3]13<j1P1g23<U4e3HR2T12g[5)"
    R"(32372332732J23327323723L3<5393l22339323723L323723393L23393<Q33<233<L5393<Q13l;2332732372)"
    R"(33I323723393L23393<Q3323723393L23393<:G3<`323393<Q13<`1U1l:35723393L23393<T1<`323393<Q13)"
    R"(<`1F[33<`1P^123393237233I323723393L23393]3323723393L23393<Q13<`35393<Q13<IGQ<323723393L2)"
    R"(3393<Q13<`323393<Q13<`1Q43<FJP>23393<Q13<:V1Q43<`1P6I\3S1iZ132:23393L5393<T1<`323393<Q13)"
    R"(<`1I[3<`1F[2o:5393<Q13<`1Q43<`1:NZ1^3d4];3<e2c1X3Z1h8o2oZ523393575L3<2339O5<3]335723393L)"
    R"(23393]13<Ig25573]13<a=32372339O23393<Q13<`323393<Q13<`1:g33<IGP>5<3]13<b2o23l1U1m5f12X1P)"
    R"(1oZ1357233<L23393<Q13<`35<3]13<:W53<`1V3j:23393<Q13<`1F[33<`1h29o2V2Nm<3<FJY3g2Y29n9`[15)"
    R"(5:>8G3<b28f4U1m48H62h262Ni:3<`1Y2Kl2Ih9i=Nj3b5b1R42F26P3R1)";
inline constexpr std::string_view iq3_xxs_steps =
    R"(0225241279I2425274327;<822572724:6>4612;S1CD5;<246C@c1GD42E>@25272522;1H2772_125277R162>)"
    R"(9=@;4S1X14BC<]2>P127252439O223277K41827612=1=D74\14Q1>HD:KU22;GL7272E=562>9;2K25=E@?Bm1?)"
    R"(C66<KOBEX1ED;>2<4]2D?1@6ANOU1;Q1>E]232>b1GG86@GO>P18Y1M;4S18G_2\1>b1@2>MP1NU1T16V2Q1U1a1)"
    R"(X1>b1221B@\1:Z1K5F=>EQ1@O2BT2)";
inline constexpr std::string_view iq3_s_steps =
    R"(01132111222146523222527331112414334247=456142133343463222=386432723642=243;4236636?:2<24)"
    R"(5642?5;32>A?722<245=4D1124122212732>239612324573672>62:3214663:3:7331366145A6;252=27424E)"
    R"(73672?W143=2K2527<4A68122212223241272232=13232634334367H33:2572:4:34234925276>;693734I37)"
    R"(59=1;=825:L4D4=2;5J722237225232:6822752=@:42:6:2<I7452419246>86547A64=72;5::=CCP12=2;S14)"
    R"(6643377@:522765664D2554:5?36<525274S12B;1I<2:Q1IADH5;;6I646>433<6522579P169:56=G51?=5<66)"
    R"(3<:<T1<C2g1P12>g122<2E@@7MFB6;568<5?e1>?>3IDEKY12e14392<2<6@7;?2L34637AIH3>F465HZ1@P1GW1)";
inline constexpr std::string_view iq1_s_steps =
    R"(0233274;262K<32?K262;;262j21<3231;L539357322M<32?k2262;;262K<8;5G2627447262W;32?L8<5:1\1)"
    R"(8<l2311?32?G5561311372332G@43273113[35X13<2338153L<35W;262;;262K<5?K262;;262k2<35;1L?14<)"
    R"(35X1323<k2262;;262K<884K2332;;262V[1135;1L3<539314X132;4l23237233935L5611211375O>3<3]332)"
    R"(?K639332:2O<32?l:53;13185K412273113933L57413117314i2357311372332G311;12113173113G2213261)"
    R"(31131623l2311?12275J2213274121831311L483?5X;5?L323753261323L<3A[323574M213931131655O8133)"
    R"(953P3=>2N237233953L<54V[1262;;2332K<884K262;;2332k2<35<M25<327311O;63<l27274;262K<53<L72)"
    R"(74;262k:?23<O1139332<O<3584T3<<8G539314933Q1741327323l2;27<L8<;18K2::V;262;;262K<3AK262F)"
    R"(262o2835<Q1393<323L;63;1k2262F262K<53<K262;;262kZ5<5?T19332732^1585j2132393122753L327311)"
    R"(31;32G32:23;11S3<32?LA35:5P1;Al:D4@L327311;1332G53723;18h213573113755G3113713112183113I2)"
    R"(13931131;32g244;132735G233811313933I45:1<32o:<45;M77539323L<323<l24146413932J55712113723)"
    R"(14L393129323]3^123<32:5[1AlZ13113935735G5393113<3N3<38153l231173112175122G31137112112117)"
    R"(3113I3<3113755g25<3573N357311393P1;2341:P;1<311218432G3113161311211712113G82731138315g21)"
    R"(21137112113173113G112112171121121161311211G3141613112183113g21122218313171121121H4121161)"
    R"(12112117314I3121174583121k:11375399K327311217221M7723398h213573113<L311371121121173113H4)"
    R"(4831121<o24=56513L31841219332G9831227T[1?23<O<51227323HE?l232393<143L48413<14J683<53X353)"
    R"(W115?128U1<5?\;1314753G2332731131623O147221122735l2327413[111371311383113M31741318312j27)"
    R"(<;621G532731122653H235:2217424\;3<LA3578L<7>k23<5<323G141293113755H26;<314X352Y1357532:1)"
    R"(4M>42<jZ5262F262K;1323<K262;;262k2<323<L35723121;23L4;23<k2262;;262W135<K262;;262Z;5X13=)"
    R"(45735[15X38935<3G143931131;122G3237233>[353<L3516541754K<9:l:262;;262G4<35<4G262;;262k21)"
    R"(;32?L323723573Q1A3<k2262;;262K<32Z1262;;262kZ1<521<L53<32?1K<323<l232375327323G5;1311393)"
    R"(O2<339323l2<35<O237233>3L?2Ch:32:53>J:7311217113O2<21398g25326131138441G3113711211211731)"
    R"(13H43912113162332g23<54763L3181313<3J251821?23l:A3<L5:2314:1P1<53<o223723326132J23327311)"
    R"(39314G3<23575o2@@O237539T1<311Z[1262;;262K<323W1262;;262k2483231\13843273Q1;243Y36269962)"
    R"(K<53<K262;;262_;<L3<413274121LQ437233>3I3<3113<5G3113933]3<5474O24831282T1:513832j:262F2)"
    R"(62W1323W1262;;262k2?584L?55753W16Z3262F262W132Z1262;;262)";
// clang-format on

inline constexpr std::array<std::int8_t, 4> two_bit_levels{8, 25, 43, 0};
inline constexpr std::array<std::int8_t, 8> three_bit_levels{4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<std::int8_t, 8> odd_levels{1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::array<std::int8_t, 4> ternary_digits{0, 1, 2, 0};

}  // namespace detail

inline constexpr auto iq2_xxs_grid =
    detail::unpack<std::uint64_t, 256>(detail::iq2_xxs_steps, detail::two_bit_levels);
inline constexpr auto iq2_xs_grid =
    detail::unpack<std::uint64_t, 512>(detail::iq2_xs_steps, detail::two_bit_levels);
inline constexpr auto iq2_s_grid =
    detail::unpack<std::uint64_t, 1024>(detail::iq2_s_steps, detail::two_bit_levels);
inline constexpr auto iq3_xxs_grid =
    detail::unpack<std::uint32_t, 256>(detail::iq3_xxs_steps, detail::three_bit_levels);
inline constexpr auto iq3_s_grid =
    detail::unpack<std::uint32_t, 512>(detail::iq3_s_steps, detail::odd_levels);
inline constexpr auto iq1_s_grid =
    detail::unpack<std::uint64_t, 2048>(detail::iq1_s_steps, detail::ternary_digits);

}  // namespace terrace::quant
