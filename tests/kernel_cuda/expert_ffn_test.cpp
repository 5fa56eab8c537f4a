// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/expert_ffn.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/matrices.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

constexpr std::size_t experts = 5, top_k = 2, width = 256, inner = 288;

/// A layer whose three matrices have different types, its experts' blocks one after the other.
struct layer_of_experts {
  expert_shape shape{.experts = experts, .top_k = top_k, .layer = 7};
  std::vector<std::byte> bytes;
  std::size_t block_bytes = 0;
  std::vector<std::vector<float>> gate, up, down;

  layer_of_experts(test::generator& random, quant_type up_type) {
    for (std::size_t expert = 0; expert < experts; ++expert) {
      std::size_t const start = bytes.size();
      gate.push_back(append(quant_type::q4_k, inner, width, random, start, shape.gate));
      up.push_back(append(up_type, inner, width, random, start, shape.up));
      down.push_back(append(quant_type::q8_0, width, inner, random, start, shape.down));
      block_bytes = bytes.size() - start;
    }
  }

 private:
  std::vector<float> append(quant_type type,
                            std::size_t rows,
                            std::size_t cols,
                            test::generator& random,
                            std::size_t start,
                            matrix_layout& layout) {
    auto const made = test::random_matrix(type, rows, cols, random);
    layout = made.layout;
    layout.data_offset = bytes.size() - start + made.layout.data_offset;
    bytes.insert(bytes.end(), made.bytes.begin(), made.bytes.end());
    return test::decoded(made.view());
  }
};

std::vector<double> times(std::vector<float> const& w,
                          std::vector<double> const& x,
                          std::size_t rows) {
  std::vector<double> y(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) { y[r] += w[r * x.size() + c] * x[c]; }
  }
  return y;
}

/// The layer on a device with inputs and choices.
struct experiment {
  numerics mode = numerics::exact;
  quant_type up_type = quant_type::mxfp4;
  std::size_t tokens = 3;
  test_device device{};
  test::generator random{19};
  layer_of_experts layer{random, up_type};
  test::device_block block{device, layer.bytes};
  std::vector<float> x = test::random_floats(random, tokens* width);
  device_array<float> x_there = device.upload(x);
  device_array<device_fault> fault = device.upload(std::vector<device_fault>(1));
  device_array<std::byte> scratch{expert_scratch_bytes(mode, layer.shape, tokens)};
  device_array<std::byte> prepared{prepared_bytes(mode, tokens, width) + 16};
  device_array<float> rows = device.upload(std::vector<float>(tokens * top_k * width));

  void compute(std::vector<expert_id> const& ids, std::vector<std::size_t> const& present) {
    std::vector<expert_entry> table(experts);
    for (auto const expert : present) {
      table[expert].block = block.data() + expert * layer.block_bytes;
    }
    auto const table_there = device.upload(table);
    auto const ids_there = device.upload(ids);
    auto const input =
        prepare(device.stream(), mode, x_there.data(), tokens, width, prepared.data());
    expert_rows(device.stream(),
                layer.shape,
                table_there.data(),
                input,
                ids_there.data(),
                rows.data(),
                scratch.data(),
                fault.data());
    static_cast<void>(device.download(rows));
  }
  std::vector<float> combined(std::vector<expert_id> const& ids, std::vector<float> const& gates) {
    auto const ids_there = device.upload(ids);
    auto const gates_there = device.upload(gates);
    auto const sum = device.upload(std::vector<float>(tokens * width, 0.5F));
    combine(device.stream(),
            layer.shape,
            ids_there.data(),
            gates_there.data(),
            rows.data(),
            tokens,
            sum.data(),
            fault.data());
    return device.download(sum);
  }
  device_fault first_fault() { return device.download(fault).front(); }
};

std::vector<expert_id> ids_of(std::vector<std::uint32_t> const& numbers) {
  std::vector<expert_id> ids;
  for (auto const one : numbers) { ids.push_back(expert_id{one}); }
  return ids;
}

/// How far a run's sums are off the mark, and how large they should be.
struct deviation {
  double worst = 0, largest = 0;
};
deviation deviation_of(experiment const& run,
                       std::vector<float> const& sum,
                       std::vector<expert_id> const& ids,
                       std::vector<float> const& gates) {
  deviation found;
  for (std::size_t t = 0; t < run.tokens; ++t) {
    std::vector<double> expected(width, 0.5);
    for (std::size_t s = 0; s < top_k; ++s) {
      auto const expert = static_cast<std::size_t>(ids[t * top_k + s]);
      std::vector<double> const x(run.x.begin() + static_cast<std::ptrdiff_t>(t * width),
                                  run.x.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
      auto hidden = times(run.layer.gate[expert], x, inner);
      auto const up = times(run.layer.up[expert], x, inner);
      for (std::size_t i = 0; i < inner; ++i) {
        hidden[i] = hidden[i] / (1 + std::exp(-hidden[i])) * up[i];
      }
      auto const out = times(run.layer.down[expert], hidden, width);
      for (std::size_t i = 0; i < width; ++i) { expected[i] += gates[t * top_k + s] * out[i]; }
    }
    for (std::size_t i = 0; i < width; ++i) {
      found.worst = std::max(found.worst, std::abs(sum[t * width + i] - expected[i]));
      found.largest = std::max(found.largest, std::abs(expected[i]));
    }
  }
  return found;
}

}  // namespace

TEST_CASE("fast experts give what plain loops give as far as rounded inputs allow",
          "[kernel][cuda][sanitize]") {
  // Gate and up of one type are multiplied together, of two types one after the other. Three tokens
  // are codes; many are sorted, and one expert gets more than a tile of their pairs.
  experiment run{.mode = numerics::fast,
                 .up_type = GENERATE(quant_type::q4_k, quant_type::mxfp4),
                 .tokens = GENERATE(3U, 150U)};
  auto ids = ids_of({4, 1, 1, 3, 3, 4});
  std::vector<float> gates{0.5F, 0.25F, 1.0F, 0.125F, 0.75F, 0.5F};
  for (std::size_t t = 3; t < run.tokens; ++t) {
    ids.push_back(expert_id{1});
    ids.push_back(expert_id{static_cast<std::uint32_t>(2 + t % 3)});
    gates.insert(gates.end(), {0.5F, 0.25F});
  }
  run.compute(ids, {0, 1, 2, 3, 4});
  auto const found = deviation_of(run, run.combined(ids, gates), ids, gates);
  CHECK(found.largest > 1);
  CHECK(found.worst <= 2e-2 * found.largest);
  CHECK(run.first_fault().kind == 0);
}

TEST_CASE("experts of mixed types give what plain loops give, each weighed by its gate",
          "[kernel][cuda][sanitize]") {
  experiment run;
  auto const ids = ids_of({4, 1, 0, 3, 3, 2});
  std::vector<float> const gates{0.5F, 0.25F, 1.0F, 0.125F, 0.75F, 0.5F};
  run.compute(ids, {0, 1, 2, 3, 4});
  auto const sum = run.combined(ids, gates);
  auto const found = deviation_of(run, sum, ids, gates);
  CHECK(found.largest > 1);
  CHECK(found.worst <= 1e-5 * found.largest);
  CHECK(run.first_fault().kind == 0);
}

TEST_CASE("experts that come in parts give the bits of experts that are all here",
          "[kernel][cuda]") {
  auto const mode = GENERATE(numerics::exact, numerics::fast);
  auto const up_type = GENERATE(quant_type::q4_k, quant_type::mxfp4);
  std::size_t const tokens = GENERATE(3U, 12U);
  std::vector<std::uint32_t> numbers{4, 1, 0, 3, 3, 2};
  for (std::uint32_t t = 3; t < tokens; ++t) {
    numbers.insert(numbers.end(), {t % 5, (t + 1) % 5});
  }
  auto const ids = ids_of(numbers);
  experiment whole{.mode = mode, .up_type = up_type, .tokens = tokens};
  whole.compute(ids, {0, 1, 2, 3, 4});
  experiment parts{.mode = mode, .up_type = up_type, .tokens = tokens};
  parts.compute(ids, {1, 3});
  parts.compute(ids, {0, 2, 4});
  CHECK(test::same_bits(whole.device.download(whole.rows), parts.device.download(parts.rows)));
}

TEST_CASE("an expert id that does not exist is reported with its layer",
          "[kernel][cuda][sanitize]") {
  experiment run{.mode = GENERATE(numerics::exact, numerics::fast), .tokens = GENERATE(3U, 9U)};
  std::vector<std::uint32_t> numbers{4, 1, 0, 99, 3, 2};
  while (numbers.size() < run.tokens * top_k) { numbers.insert(numbers.end(), {4, 1}); }
  run.compute(ids_of(numbers), {0, 1, 2, 3, 4});
  auto const fault = run.first_fault();
  CHECK(fault.kind == device_fault::bad_expert);
  CHECK(fault.layer == 7);
  CHECK(fault.expert == 99);
}

TEST_CASE("an output that is not finite is reported with its expert", "[kernel][cuda][sanitize]") {
  experiment run;
  auto const ids = ids_of({4, 1, 0, 3, 3, 2});
  run.compute(ids, {0, 1, 2, 3, 4});
  auto rows = run.device.download(run.rows);
  rows[3 * width + 17] = std::numeric_limits<float>::quiet_NaN();  // of token 1, choice 1: expert 3
  run.rows = run.device.upload(rows);
  static_cast<void>(run.combined(ids, std::vector<float>(6, 1.0F)));
  auto const fault = run.first_fault();
  CHECK(fault.kind == device_fault::not_finite);
  CHECK(fault.expert == 3);
}

}  // namespace terrace::kernel::cuda
