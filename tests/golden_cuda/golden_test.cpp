// SPDX-License-Identifier: Apache-2.0
// The numbers in golden.json, computed by the cuda backend.
#include "support/cuda_machine.hpp"
#include "support/golden_models.hpp"
#include "support/reference_checks.hpp"
#include "support/running_model.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstddef>

namespace terrace::golden {
namespace {

constexpr std::size_t most_tokens = 20;  ///< what the emulated runtime computes in a few seconds

setup on_device(numerics mode) {
  return {.backend = runtime::compute_backend::cuda, .mode = mode, .chain = {.name = "vram-nvme"}};
}

TEMPLATE_TEST_CASE(
    "exact numerics on a device reproduce the reference's logits, tokens, experts and likelihoods",
    "[golden]",
    llama_tiny,
    minimax_m2_tiny,
    kimi_k2_tiny,
    kimi_k3_tiny) {
  auto const which = reference_model(TestType::name, false);
  test::cuda_machine const machine;
  running_model model{which.weights, on_device(numerics::exact)};
  check_all_outputs(model, shortened(read_golden(which.golden), most_tokens));
}

TEMPLATE_TEST_CASE("fast numerics on a device stay within 0.3 % of the reference's likelihood",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny) {
  auto const which = reference_model(TestType::name, false);
  test::cuda_machine const machine;
  auto const golden = shortened(read_golden(which.golden), 4 * most_tokens);
  running_model model{which.weights, on_device(numerics::fast)};
  CHECK(std::abs(nll_mean(model, golden, 0.1, 10) / golden.nll_mean - 1) <= 0.003);
}

}  // namespace
}  // namespace terrace::golden
