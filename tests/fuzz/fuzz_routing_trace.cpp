// SPDX-License-Identifier: Apache-2.0
// Any bytes as a routing trace: choices that the writer turns into the same bytes again, or a
// terrace::error.
#include <terrace/core/error.hpp>
#include <terrace/observe/routing_trace.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace terrace::observe;
  std::string_view const bytes{reinterpret_cast<char const*>(data), size};
  try {
    auto const trace = parse_routing_trace(bytes, "input");
    for (std::size_t token = 0; token < trace.tokens.size(); ++token) {
      for (std::size_t layer = 0; layer < trace.layers; ++layer) {
        for (auto const expert : trace.at(token, layer)) {
          if (expert >= trace.experts) { std::abort(); }
        }
      }
    }
    if (routing_trace_bytes("input", trace) != bytes) { std::abort(); }
  } catch (terrace::error const&) {  // the only answer a damaged file may get
  }
  return 0;
}
