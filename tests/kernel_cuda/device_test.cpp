// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <kernel_cuda/device_probes.hpp>
#include <kernel_cuda/support.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

/// Small integers, which both formats hold exactly: sums are exact in any order.
std::vector<float> small_integers(std::size_t n, unsigned seed) {
  std::mt19937 random{seed};
  std::vector<float> values(n);
  for (float& v : values) { v = static_cast<float>(static_cast<int>(random() % 31) - 15); }
  return values;
}
std::uint16_t bf16_bits(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}
/// For integers of at most 11 bits.
std::uint16_t f16_bits(float x) {
  if (x == 0) { return 0; }
  int exponent = 0;
  float const mantissa = std::frexp(std::abs(x), &exponent);  // in [0.5, 1)
  auto const fraction = static_cast<unsigned>(mantissa * 2048) - 1024;
  return static_cast<std::uint16_t>((x < 0 ? 0x8000U : 0U) |
                                    static_cast<unsigned>(exponent + 14) << 10 | fraction);
}

template <class Encode, class Multiply>
void check_product(std::size_t k, Encode encode, Multiply multiply) {
  test_device const device;
  auto const a = small_integers(16 * k, 1);
  auto const b = small_integers(k * 8, 2);
  std::vector<std::uint16_t> a_bits;
  std::vector<std::uint16_t> b_bits;
  for (float const v : a) { a_bits.push_back(encode(v)); }
  for (float const v : b) { b_bits.push_back(encode(v)); }
  auto const device_a = device.upload(a_bits);
  auto const device_b = device.upload(b_bits);
  device_array<float> const device_c{16 * 8};
  multiply(device.stream(), device_a.data(), device_b.data(), device_c.data());
  auto const c = device.download(device_c);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float sum = 0;
      for (std::size_t i = 0; i < k; ++i) { sum += a[row * k + i] * b[i * 8 + column]; }
      CHECK(c[row * 8 + column] == sum);
    }
  }
}

}  // namespace

TEST_CASE("tensor cores multiply fragments as a plain loop does", "[kernel][cuda]") {
  SECTION("bfloat16, 16 x 8 x 16") { check_product(16, bf16_bits, probe::multiply_bf16); }
  SECTION("float16, 16 x 8 x 16") { check_product(16, f16_bits, probe::multiply_f16); }
  SECTION("float16, 16 x 8 x 8") { check_product(8, f16_bits, probe::multiply_f16_k8); }
  SECTION("loaded by ldmatrix from what cp.async copied") {
    check_product(16, bf16_bits, probe::multiply_through_shared);
  }
}

TEST_CASE("lanes of a warp exchange values", "[kernel][cuda]") {
  test_device const device;
  device_array<std::uint32_t> const values{32 * 6};
  probe::shuffle(device.stream(), values.data());
  auto const out = device.download(values);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    std::uint32_t const* const mine = out.data() + 6 * lane;
    CHECK(mine[0] == 100 + (lane ^ 5U));
    CHECK(mine[1] == 100 + (lane + 3 < 32 ? lane + 3 : lane));
    CHECK(mine[2] == 100 + (lane >= 2 ? lane - 2 : lane));
    CHECK(mine[3] == 107);
    CHECK(mine[4] == 0xaaaaaaaaU);
    CHECK(mine[5] == 100 + (lane ^ 4U));
  }
}

TEST_CASE("a block sums through shared memory", "[kernel][cuda]") {
  test_device const device;
  for (unsigned const threads : {1U, 2U, 64U, 1024U}) {
    auto const x = small_integers(3 * threads, threads);
    auto const device_x = device.upload(x);
    device_array<float> const sums{3};
    probe::block_sums(device.stream(), 3, threads, device_x.data(), sums.data());
    auto const out = device.download(sums);
    for (unsigned block = 0; block < 3; ++block) {
      float sum = 0;
      for (unsigned i = 0; i < threads; ++i) { sum += x[block * threads + i]; }
      CHECK(out[block] == sum);
    }
  }
}

TEST_CASE("atomics count every thread", "[kernel][cuda]") {
  test_device const device;
  auto const counter = device.upload(std::vector<std::uint32_t>{0, 0, 0});
  probe::count(device.stream(), 5, 96, counter.data());
  CHECK(device.download(counter) == std::vector<std::uint32_t>{480, 479, 960});
}

TEST_CASE("a kernel waits for a word that the host writes, and answers", "[kernel][cuda]") {
  test_device const device;
  void* memory = nullptr;
  shim::check(cudaHostAlloc(&memory, 8, cudaHostAllocMapped));
  auto* const words = static_cast<std::uint32_t*>(memory);
  words[0] = 0;
  words[1] = 0;
  probe::answer(device.stream(), words, words + 1);
  CHECK(cudaStreamQuery(device.stream().get()) == cudaErrorNotReady);
  std::atomic_ref<std::uint32_t>{words[0]}.store(41, std::memory_order_release);
  shim::synchronize(device.stream());
  CHECK(words[1] == 42);
  shim::check(cudaFreeHost(memory));
}

TEST_CASE("bits are counted and bytes multiplied as documented", "[kernel][cuda]") {
  test_device const device;
  device_array<std::int32_t> const out{5};
  probe::bits(device.stream(), out.data());
  // 127 * 1 - 128 * 127 - 1 * 2 + 1 * -1 + 10
  CHECK(device.download(out) ==
        std::vector<std::int32_t>{127 - 16256 - 2 - 1 + 10, 0x77553311, 8, 15, 17});
}

}  // namespace terrace::kernel::cuda
