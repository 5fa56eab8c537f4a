// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json, and as a generation_config.json beside it: metadata or a
// terrace::error.
#include <terrace/core/error.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/model_config.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace terrace::format;
  try {
    auto const text =
        detail::parse_json({reinterpret_cast<char const*>(data), size}, "config.json");
    static_cast<void>(detail::config_translator{text, text, "config.json"}.translate());
  } catch (terrace::error const&) {  // the only answer a damaged file may get
  }
  return 0;
}
