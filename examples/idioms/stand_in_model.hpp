// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/ids.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

/// A file of equal experts, in the place of a model: every byte of expert e holds the value e.
/// Removed with the object.
class stand_in_model {
 public:
  static constexpr std::size_t expert_bytes = 64 * 1024;

  explicit stand_in_model(std::uint32_t experts)
      : path_{std::filesystem::temp_directory_path() /
              ("terrace-idiom-" + std::to_string(getpid()) + ".bin")} {
    std::ofstream out{path_, std::ios::binary};
    for (std::uint32_t e = 0; e < experts; ++e) {
      out << std::string(expert_bytes, static_cast<char>(e));
      terrace::block_info block{
          .id = terrace::expert_block(terrace::layer_id{0}, terrace::expert_id{e}),
          .names = {"blk.0.experts." + std::to_string(e)},
          .bytes = expert_bytes,
          .extents = {},
          .matrices = {}};
      block.extents.push_back(
          {.from = {.file = {}, .offset = e * expert_bytes, .bytes = expert_bytes}});
      blocks_.push_back(block);
    }
    if (!out.flush()) { throw std::runtime_error{"cannot write " + path_.string()}; }
  }
  stand_in_model(stand_in_model const&) = delete;
  stand_in_model& operator=(stand_in_model const&) = delete;
  ~stand_in_model() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  [[nodiscard]] std::vector<std::filesystem::path> files() const { return {path_}; }
  [[nodiscard]] std::vector<terrace::block_info> const& blocks() const { return blocks_; }

 private:
  std::filesystem::path path_;
  std::vector<terrace::block_info> blocks_;
};
