// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/iq_grids.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// The codebooks of quant/iq_grids.hpp where a kernel can read them.
namespace terrace::kernel::cuda::detail {

template <class Row, std::size_t Rows>
struct device_book {
  Row rows[Rows];

  explicit constexpr device_book(quant::codebook<Row, Rows> const& from) : rows{} {
    for (std::size_t i = 0; i < Rows; ++i) { rows[i] = from[i]; }
  }
};

static __device__ constexpr device_book iq2_xxs_book{quant::iq2_xxs_grid};
static __device__ constexpr device_book iq2_xs_book{quant::iq2_xs_grid};
static __device__ constexpr device_book iq2_s_book{quant::iq2_s_grid};
static __device__ constexpr device_book iq3_xxs_book{quant::iq3_xxs_grid};
static __device__ constexpr device_book iq3_s_book{quant::iq3_s_grid};
static __device__ constexpr device_book iq1_s_book{quant::iq1_s_grid};

}  // namespace terrace::kernel::cuda::detail
