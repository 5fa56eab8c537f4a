// SPDX-License-Identifier: Apache-2.0
// Devices that fail and experts that are damaged: one sentence, never a hang, never other text.
#include "support/changed_gguf.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"

#include <terrace/core/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <emulated_cuda/control.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

std::filesystem::path small_mixture() {
  return std::filesystem::path{TERRACE_SOURCE_DIR} / "examples/models/kimi-k2-tiny.gguf";
}

/// Some experts beside the device's, so that copies happen between steps.
setup capped(std::string const& dispatch = "device") {
  setup how{.backend = runtime::compute_backend::cuda,
            .dispatch = dispatch,
            .context_tokens = 32,
            .prefill_chunk = 32};
  how.chain.name = "vram-pinned-nvme";
  how.chain.vram = runner::size_request::parse("4.5MiB");
  how.chain.pinned = runner::size_request::parse("16MiB");
  return how;
}

std::vector<float> two_steps(std::filesystem::path const& path, setup const& how) {
  running_model model{path, how};
  std::array<std::int32_t, 3> const ids{347, 547, 288};
  static_cast<void>(model.logits(ids));
  return model.append(710);
}

bool is_one_sentence(std::string const& text) {
  return !text.empty() && text.find('\n') == std::string::npos && text.back() != '.';
}

/// Runs with every `stride`-th call of `kind` failing in turn.
template <class Fail>
void fail_each(emulated_cuda::call kind, std::size_t runs, Fail&& fail) {
  emulated_cuda::reset();
  auto const expected = two_steps(small_mixture(), capped());
  auto const calls = emulated_cuda::count(kind);
  REQUIRE(calls > 0);
  std::size_t const step = std::max<std::size_t>(1, calls / runs);
  std::size_t refused = 0;
  for (std::size_t n = 1; n <= calls; n += step) {
    emulated_cuda::reset();
    fail(static_cast<unsigned>(n));
    CAPTURE(n, calls);
    try {
      auto const got = two_steps(small_mixture(), capped());
      CHECK(got == expected);  // an allocation, for example, that eviction makes room for
    } catch (error const& why) {
      ++refused;
      CAPTURE(why.what());
      CHECK(is_one_sentence(why.what()));
    }
  }
  CHECK(refused > 0);
  emulated_cuda::reset();
}

}  // namespace

TEST_CASE("an allocation that fails anywhere ends in one sentence or changes nothing",
          "[golden][cuda]") {
  using emulated_cuda::call;
  auto const kind = GENERATE(call::device_allocation, call::pinned_allocation);
  fail_each(kind, 14, [kind](unsigned n) {
    emulated_cuda::fail_call(kind, n, cudaErrorMemoryAllocation);
  });
}

TEST_CASE("a copy, a fill or a launch that is refused ends in one sentence", "[golden][cuda]") {
  using emulated_cuda::call;
  auto const kind = GENERATE(call::copy, call::fill, call::launch);
  fail_each(
      kind, 12, [kind](unsigned n) { emulated_cuda::fail_call(kind, n, cudaErrorLaunchFailure); });
}

TEST_CASE("a copy or a kernel that fails on the device ends in one sentence", "[golden][cuda]") {
  using emulated_cuda::call;
  auto const kind = GENERATE(call::copy, call::launch);
  fail_each(
      kind, 6, [kind](unsigned n) { emulated_cuda::fail_later(kind, n, cudaErrorIllegalAddress); });
}

TEST_CASE("a value that is not finite in one expert is refused naming layer and expert",
          "[golden][cuda]") {
  emulated_cuda::reset();
  std::array<std::int32_t, 3> const ids{347, 547, 288};
  std::vector<std::uint16_t> chosen;
  {
    running_model model{small_mixture(), capped()};
    model.pipeline().record_routing(&chosen);
    static_cast<void>(model.logits(ids));
  }
  std::size_t const expert = chosen.front();  // of the first mixture layer
  std::string layer;
  test::scratch_folder const folder;
  auto const damaged = write_changed(
      small_mixture(), folder.file("damaged.gguf"), {.tensor = [&](copied_tensor& one) {
        auto const at = one.name.find(".ffn_up_exps.weight");
        if (at == std::string::npos || !layer.empty()) { return; }
        layer = one.name.substr(4, at - 4);
        std::size_t const bytes = one.bytes.size() / one.dims.back();
        std::fill_n(one.bytes.begin() + static_cast<std::ptrdiff_t>(expert * bytes),
                    bytes,
                    std::byte{0xFF});  // scales of all types are NaN
      }});
  for (std::string const chain : {"vram-nvme", "vram-pinned-nvme"}) {
    auto how = capped();
    how.chain.name = chain;
    how.chain.vram.reset();
    if (chain == "vram-nvme") { how.chain.pinned.reset(); }
    std::string said;
    try {
      static_cast<void>(two_steps(damaged, how));
    } catch (error const& why) { said = why.what(); }
    CHECK(said.starts_with("expert " + std::to_string(expert) + " of layer " + layer + " "));
    CHECK(is_one_sentence(said));
  }
}

}  // namespace terrace::golden
