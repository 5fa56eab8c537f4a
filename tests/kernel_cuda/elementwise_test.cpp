// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/elementwise.hpp>

#include <catch2/catch_test_macros.hpp>
#include <kernel_cuda/support.hpp>

#include <cstddef>
#include <vector>

namespace terrace::kernel::cuda {

TEST_CASE("add sums any number of values, those at the end of a block included", "[kernel][cuda]") {
  test_device device;
  for (std::size_t const n :
       {std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{1000}}) {
    std::vector<float> x(n);
    std::vector<float> y(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(i);
      y[i] = 0.5F;
    }
    auto const device_x = device.upload(x);
    auto const device_y = device.upload(y);
    add(device.stream(), device_x.data(), n, device_y.data());
    std::vector<float> const sum = device.download(device_y);
    for (std::size_t i = 0; i < n; ++i) { CHECK(sum[i] == static_cast<float>(i) + 0.5F); }
  }
}

TEST_CASE("a kernel refuses the host's stream", "[kernel][cuda]") {
  float value = 0;
  CHECK_THROWS_AS(add(stream_ref::host(), &value, 1, &value), contract_error);
}

}  // namespace terrace::kernel::cuda
