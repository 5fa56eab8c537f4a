// SPDX-License-Identifier: Apache-2.0
// What a model file holds, without reading a weight: blocks, their bytes and their encodings.

#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/catalog.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

using namespace terrace;

namespace {

struct share {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
};

bool describe(char const* path) {
  auto const model = format::catalog::open(path);
  std::map<std::string, share> shares;  // "expert q4_k" -> how many, how large
  for (auto const& block : model.blocks()) {
    std::string const kind = kind_of(block.id) == block_kind::expert ? "expert " : "dense ";
    auto& one = shares[kind + std::string{name_of(block.matrices.front().type)}];
    ++one.blocks;
    one.bytes += block.file_bytes();
  }
  std::printf("%s, %zu file(s), %s, %zu layers with experts\n",
              model.architecture().c_str(),
              model.files().size(),
              format_size(model.total_file_bytes()).c_str(),
              model.expert_layers().size());
  std::uint64_t sum = 0;
  for (auto const& [what, one] : shares) {
    std::printf("  %-16s %6llu blocks  %s\n",
                what.c_str(),
                static_cast<unsigned long long>(one.blocks),
                format_size(one.bytes).c_str());
    sum += one.bytes;
  }
  return sum > 0 && sum <= model.total_file_bytes();  // blocks do not overlap, headers are extra
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) { return std::fputs("usage: idiom_read_catalog MODEL\n", stderr), 2; }
  try {
    return describe(argv[1]) ? 0 : 1;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
