// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <cstdint>

/// Weights as float32, with the bits of quant::decode_rows. Data and scales of a matrix lie in
/// memory that the stream's device reads, at any address; the aligned words of four bytes that hold
/// their first and last bytes must be readable too.
///
/// Errors of each: contract_error when rows are no whole blocks, a scale grid has no scales or the
///                 stream is the host's; not_supported for types nobody knows; cuda_error,
///                 device_lost.
namespace terrace::kernel::cuda {

/// out [rows, w.cols] = rows [first_row, first_row + rows) of w; enqueues on `on`.
/// Errors: contract_error when w has fewer rows.
void dequantise(
    stream_ref on, matrix_view const& w, std::uint64_t first_row, std::uint64_t rows, float* out);

/// out [tokens, w.cols] = the rows of w that ids [tokens], on the device, name; NaN for a row that
/// w does not have.
void embed(
    stream_ref on, matrix_view const& w, std::int32_t const* ids, std::size_t tokens, float* out);

}  // namespace terrace::kernel::cuda
