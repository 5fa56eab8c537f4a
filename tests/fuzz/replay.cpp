// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target once over every file of the folders named: what a fuzzer found stays fixed,
// with any compiler.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

int main(int count, char** folders) {
  int inputs = 0;
  for (int i = 1; i < count; ++i) {
    for (auto const& entry : std::filesystem::recursive_directory_iterator{folders[i]}) {
      if (!entry.is_regular_file()) { continue; }
      std::ifstream in{entry.path(), std::ios::binary};
      std::string const bytes{std::istreambuf_iterator<char>{in}, {}};
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);
      static_cast<void>(LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(bytes.data()),
                                               bytes.size()));
      ++inputs;
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
