// SPDX-License-Identifier: Apache-2.0
#pragma once

// The vector types of CUDA, their sizes and alignments included.

struct char1 {
  signed char x;
};
constexpr char1 make_char1(signed char x) { return {x}; }
struct alignas(2) char2 {
  signed char x, y;
};
constexpr char2 make_char2(signed char x, signed char y) { return {x, y}; }
struct char3 {
  signed char x, y, z;
};
constexpr char3 make_char3(signed char x, signed char y, signed char z) { return {x, y, z}; }
struct alignas(4) char4 {
  signed char x, y, z, w;
};
constexpr char4 make_char4(signed char x, signed char y, signed char z, signed char w) {
  return {x, y, z, w};
}
struct uchar1 {
  unsigned char x;
};
constexpr uchar1 make_uchar1(unsigned char x) { return {x}; }
struct alignas(2) uchar2 {
  unsigned char x, y;
};
constexpr uchar2 make_uchar2(unsigned char x, unsigned char y) { return {x, y}; }
struct uchar3 {
  unsigned char x, y, z;
};
constexpr uchar3 make_uchar3(unsigned char x, unsigned char y, unsigned char z) {
  return {x, y, z};
}
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
constexpr uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) {
  return {x, y, z, w};
}
struct short1 {
  short x;
};
constexpr short1 make_short1(short x) { return {x}; }
struct alignas(4) short2 {
  short x, y;
};
constexpr short2 make_short2(short x, short y) { return {x, y}; }
struct short3 {
  short x, y, z;
};
constexpr short3 make_short3(short x, short y, short z) { return {x, y, z}; }
struct alignas(8) short4 {
  short x, y, z, w;
};
constexpr short4 make_short4(short x, short y, short z, short w) { return {x, y, z, w}; }
struct ushort1 {
  unsigned short x;
};
constexpr ushort1 make_ushort1(unsigned short x) { return {x}; }
struct alignas(4) ushort2 {
  unsigned short x, y;
};
constexpr ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }
struct ushort3 {
  unsigned short x, y, z;
};
constexpr ushort3 make_ushort3(unsigned short x, unsigned short y, unsigned short z) {
  return {x, y, z};
}
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};
constexpr ushort4 make_ushort4(unsigned short x,
                               unsigned short y,
                               unsigned short z,
                               unsigned short w) {
  return {x, y, z, w};
}
struct int1 {
  int x;
};
constexpr int1 make_int1(int x) { return {x}; }
struct alignas(8) int2 {
  int x, y;
};
constexpr int2 make_int2(int x, int y) { return {x, y}; }
struct int3 {
  int x, y, z;
};
constexpr int3 make_int3(int x, int y, int z) { return {x, y, z}; }
struct alignas(16) int4 {
  int x, y, z, w;
};
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct uint1 {
  unsigned int x;
};
constexpr uint1 make_uint1(unsigned int x) { return {x}; }
struct alignas(8) uint2 {
  unsigned int x, y;
};
constexpr uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
struct uint3 {
  unsigned int x, y, z;
};
constexpr uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) { return {x, y, z}; }
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
constexpr uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) {
  return {x, y, z, w};
}
struct longlong1 {
  long long x;
};
constexpr longlong1 make_longlong1(long long x) { return {x}; }
struct alignas(16) longlong2 {
  long long x, y;
};
constexpr longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
struct longlong3 {
  long long x, y, z;
};
constexpr longlong3 make_longlong3(long long x, long long y, long long z) { return {x, y, z}; }
struct alignas(16) longlong4 {
  long long x, y, z, w;
};
constexpr longlong4 make_longlong4(long long x, long long y, long long z, long long w) {
  return {x, y, z, w};
}
struct ulonglong1 {
  unsigned long long x;
};
constexpr ulonglong1 make_ulonglong1(unsigned long long x) { return {x}; }
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
struct ulonglong3 {
  unsigned long long x, y, z;
};
constexpr ulonglong3 make_ulonglong3(unsigned long long x,
                                     unsigned long long y,
                                     unsigned long long z) {
  return {x, y, z};
}
struct alignas(16) ulonglong4 {
  unsigned long long x, y, z, w;
};
constexpr ulonglong4 make_ulonglong4(unsigned long long x,
                                     unsigned long long y,
                                     unsigned long long z,
                                     unsigned long long w) {
  return {x, y, z, w};
}
struct float1 {
  float x;
};
constexpr float1 make_float1(float x) { return {x}; }
struct alignas(8) float2 {
  float x, y;
};
constexpr float2 make_float2(float x, float y) { return {x, y}; }
struct float3 {
  float x, y, z;
};
constexpr float3 make_float3(float x, float y, float z) { return {x, y, z}; }
struct alignas(16) float4 {
  float x, y, z, w;
};
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct double1 {
  double x;
};
constexpr double1 make_double1(double x) { return {x}; }
struct alignas(16) double2 {
  double x, y;
};
constexpr double2 make_double2(double x, double y) { return {x, y}; }
struct double3 {
  double x, y, z;
};
constexpr double3 make_double3(double x, double y, double z) { return {x, y, z}; }
struct alignas(16) double4 {
  double x, y, z, w;
};
constexpr double4 make_double4(double x, double y, double z, double w) { return {x, y, z, w}; }

struct dim3 {
  unsigned int x, y, z;
  // NOLINTNEXTLINE(google-explicit-constructor): as in the toolkit, where a number is a dim3
  constexpr dim3(unsigned int in_x = 1, unsigned int in_y = 1, unsigned int in_z = 1)
      : x{in_x}, y{in_y}, z{in_z} {}
  constexpr explicit dim3(uint3 v) : x{v.x}, y{v.y}, z{v.z} {}
  constexpr operator uint3() const { return {x, y, z}; }  // NOLINT(google-explicit-constructor)
};
