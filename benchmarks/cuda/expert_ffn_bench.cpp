// SPDX-License-Identifier: Apache-2.0
// Routed experts on a device: gate, up, what joins them and down, with the inputs' preparation,
// over weights that are not in its cache; beside each a plain read of the same bytes in the same
// run.
//
//   bench_expert_ffn [--json FILE] [--commit HASH] [--only TEXT]
//
// --only keeps the cases whose "shape/type/tokens/numerics" contains TEXT.

#include "plain_read.hpp"

#include <terrace/core/units.hpp>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/shim/cuda.hpp>

#include <kernel/support.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace terrace;
namespace cuda = terrace::kernel::cuda;

struct model_shape {
  char const* name;
  std::size_t width, inner, present, chosen;
};
constexpr model_shape shapes[] = {{"kimi-k2", 7168, 2048, 48, 8},
                                  {"kimi-k3", 3584, 3072, 64, 16},
                                  {"minimax-m2", 3072, 1536, 128, 8}};
constexpr quant_type types[] = {
    quant_type::mxfp4, quant_type::q4_k, quant_type::q8_0, quant_type::iq2_xxs, quant_type::iq1_s};
constexpr std::size_t token_counts[] = {1, 8, 2048};
constexpr int runs = 25;
/// What a product of bfloat16 matrices reaches at most on this kind of device, in TFLOP/s.
constexpr double tensor_core_bound = 790;

template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) {
    void* at = nullptr;
    shim::check(cudaMalloc(&at, count * sizeof(T) + 64),
                "taking " + format_size(count * sizeof(T)));
    data_.reset(static_cast<T*>(at));
  }
  device_array(stream_ref on, std::vector<T> const& values) : device_array{values.size()} {
    shim::copy(on, data(), values.data(), values.size() * sizeof(T));
    shim::synchronize(on);
  }
  [[nodiscard]] T* data() const { return data_.get(); }

 private:
  struct release {
    void operator()(T* at) const { static_cast<void>(cudaFree(at)); }
  };
  std::unique_ptr<T, release> data_;
};

/// Copies of one random expert, as many as keep rounds out of the cache.
struct layers_of_experts {
  cuda::expert_shape shape;
  std::size_t block_bytes = 0;
  std::size_t layers = 0;
  std::unique_ptr<device_array<std::byte>> memory;

  layers_of_experts(stream_ref on, model_shape const& of, quant_type type) {
    shape = {.experts = of.present, .top_k = of.chosen};
    std::vector<std::byte> block;
    test::generator random{7};
    auto const append = [&](std::size_t rows, std::size_t cols) {
      auto const made = test::random_matrix(type, rows, cols, random, 0.02F);
      matrix_layout const layout{
          .type = type, .rows = rows, .cols = cols, .data_offset = block.size()};
      block.insert(block.end(), made.view.data, made.view.data + layout.data_bytes());
      block.resize((block.size() + 31) / 32 * 32);
      return layout;
    };
    shape.gate = append(of.inner, of.width);
    shape.up = append(of.inner, of.width);
    shape.down = append(of.width, of.inner);
    block_bytes = block.size();
    std::size_t const round = of.chosen * block_bytes;
    layers = std::max<std::size_t>(2, (512 * mib + round - 1) / round);
    layers = std::min(layers, (12 * gib + of.present * block_bytes) / (of.present * block_bytes));
    memory = std::make_unique<device_array<std::byte>>(layers * of.present * block_bytes);
    shim::copy(on, memory->data(), block.data(), block_bytes);
    for (std::size_t i = 1; i < layers * of.present; ++i) {
      shim::copy(on, memory->data() + i * block_bytes, memory->data(), block_bytes);
    }
    shim::synchronize(on);
  }
  [[nodiscard]] std::byte const* block(std::size_t layer, std::size_t expert) const {
    return memory->data() + (layer * shape.experts + expert) * block_bytes;
  }
};

/// Ids of experts, chosen uniformly for each token.
std::vector<expert_id> choices(cuda::expert_shape const& shape,
                               std::size_t tokens,
                               test::generator& random) {
  std::vector<std::uint32_t> all(shape.experts);
  std::iota(all.begin(), all.end(), 0U);
  std::vector<expert_id> ids;
  for (std::size_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t s = 0; s < shape.top_k; ++s) { ids.push_back(expert_id{all[s]}); }
  }
  return ids;
}
std::vector<std::size_t> unique_of(std::vector<expert_id> const& ids) {
  std::vector<std::size_t> unique;
  for (auto const id : ids) { unique.push_back(static_cast<std::size_t>(id)); }
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  return unique;
}

/// Median time of a call in a graph of several, each of which `enqueue(i)` puts on the stream.
template <class Enqueue>
double median_us(stream_ref on, std::size_t calls, Enqueue&& enqueue) {
  shim::check(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal), "capturing");
  for (std::size_t i = 0; i < calls; ++i) { enqueue(i); }
  cudaGraph_t recorded = nullptr;
  shim::check(cudaStreamEndCapture(on.get(), &recorded), "ending a capture");
  shim::unique_graph const graph{recorded};
  cudaGraphExec_t ready = nullptr;
  shim::check(cudaGraphInstantiate(&ready, recorded, 0), "making a graph ready");
  shim::unique_graph_exec const exec{ready};
  auto const start = shim::make_event(0, true);
  auto const stop = shim::make_event(0, true);
  std::vector<float> times;
  for (int run = 0; run < runs + 2; ++run) {
    shim::record(on, start.get());
    shim::check(cudaGraphLaunch(exec.get(), on.get()), "launching a graph");
    shim::record(on, stop.get());
    shim::synchronize(on);
    float milliseconds = 0;
    shim::check(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), "reading a clock");
    if (run >= 2) { times.push_back(milliseconds); }
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return 1e3 * times[runs / 2] / static_cast<double>(calls);
}

/// One row of the table.
struct result {
  std::string shape, type, mode;
  std::size_t tokens, experts;
  double unique_experts, median, read, weight_gb_per_s, tflop_per_s, bound_ratio;
};

/// One layer's rounds: which experts each call takes.
struct rounds {
  std::vector<device_array<expert_id>> ids;
  std::vector<device_array<cuda::expert_entry>> tables;
  std::vector<device_array<std::byte const*>> touched;
  std::vector<std::size_t> unique;

  rounds(stream_ref on, layers_of_experts const& of, std::size_t tokens, std::size_t calls) {
    test::generator random{11};
    for (std::size_t i = 0; i < calls; ++i) {
      std::vector<cuda::expert_entry> table(of.shape.experts);
      for (std::size_t e = 0; e < table.size(); ++e) {
        table[e].block = of.block(i % of.layers, e);
      }
      auto const chosen = choices(of.shape, tokens, random);
      std::vector<std::byte const*> blocks;
      for (auto const expert : unique_of(chosen)) { blocks.push_back(table[expert].block); }
      ids.emplace_back(on, chosen);
      tables.emplace_back(on, table);
      touched.emplace_back(on, blocks);
      unique.push_back(blocks.size());
    }
  }
  [[nodiscard]] double mean_unique() const {
    return static_cast<double>(std::accumulate(unique.begin(), unique.end(), std::size_t{0})) /
           static_cast<double>(unique.size());
  }
};

double median_of_reads(stream_ref on, layers_of_experts const& layers, rounds const& all) {
  device_array<std::uint32_t> const sink{1};
  std::size_t const first_two = layers.shape.down.data_offset / 16 * 16;
  return median_us(on, all.ids.size(), [&](std::size_t i) {
    auto const* const blocks = all.touched[i].data();
    std::size_t const count = all.unique[i];
    bench::plain_read(on, {blocks, count, 0, first_two}, sink.data());
    bench::plain_read(
        on, {blocks, count, first_two, (layers.block_bytes - first_two) / 16 * 16}, sink.data());
  });
}

/// Relative distance of the last call's rows under both numerics.
double distance(std::vector<float> const& a, std::vector<float> const& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

struct measurement {
  double median;
  std::vector<float> rows;
};
measurement measure(stream_ref on,
                    layers_of_experts const& layers,
                    rounds const& all,
                    numerics mode,
                    std::size_t tokens) {
  auto const& shape = layers.shape;
  std::size_t const width = shape.gate.cols;
  test::generator random{3};
  device_array<float> const x{on, test::random_floats(random, tokens * width)};
  device_array<std::byte> const prepared{cuda::prepared_bytes(mode, tokens, width)};
  device_array<std::byte> const scratch{cuda::expert_scratch_bytes(mode, shape, tokens)};
  device_array<float> const rows{tokens * shape.top_k * width};
  device_array<cuda::device_fault> const fault{on, std::vector<cuda::device_fault>(1)};
  double const median = median_us(on, all.ids.size(), [&](std::size_t i) {
    auto const input = cuda::prepare(on, mode, x.data(), tokens, width, prepared.data());
    cuda::expert_rows(on,
                      shape,
                      all.tables[i].data(),
                      input,
                      all.ids[i].data(),
                      rows.data(),
                      scratch.data(),
                      fault.data());
  });
  measurement made{median,
                   std::vector<float>(std::min<std::size_t>(tokens, 8) * shape.top_k * width)};
  shim::copy(on, made.rows.data(), rows.data(), made.rows.size() * sizeof(float));
  shim::synchronize(on);
  return made;
}

void write_json(std::string const& path,
                std::string const& commit,
                std::string const& command,
                std::vector<result> const& results) {
  std::ofstream to{path};
  to << "{\n \"what\": \"routed experts (inputs prepared, gate, up, activation, down) on weights "
        "outside "
        "the cache, beside a plain read of the same bytes; medians of "
     << runs << " runs\",\n \"commit\": \"" << commit << "\",\n \"device\": \""
     << shim::query_device(0).name << "\",\n \"command\": \"" << command << "\",\n \"rows\": [";
  char const* separator = "\n";
  for (auto const& one : results) {
    char line[512];
    std::snprintf(
        line,
        sizeof line,
        "  {\"kernel\": \"expert_ffn\", \"shape\": \"%s\", \"type\": \"%s\", \"tokens\": %zu, "
        "\"experts\": %zu, \"unique_experts\": %.1f, \"numerics\": \"%s\", \"median_us\": %.1f, "
        "\"plain_read_us\": %.1f, \"weight_gb_per_s\": %.0f, \"tflop_per_s\": %.1f, "
        "\"bound_ratio\": %.3f}",
        one.shape.c_str(),
        one.type.c_str(),
        one.tokens,
        one.experts,
        one.unique_experts,
        one.mode.c_str(),
        one.median,
        one.read,
        one.weight_gb_per_s,
        one.tflop_per_s,
        one.bound_ratio);
    to << separator << line;
    separator = ",\n";
  }
  to << "\n ]\n}\n";
}

struct settings {
  std::string json, commit = "unknown", only, command;
};
settings parse(int argc, char** argv) {
  settings wanted;
  for (int i = 0; i < argc; ++i) {
    wanted.command += (i == 0 ? "bench_expert_ffn" : std::string{" "} + argv[i]);
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view const name = argv[i];
    (name == "--json"     ? wanted.json
     : name == "--commit" ? wanted.commit
                          : wanted.only) = argv[i + 1];
  }
  return wanted;
}

void run(settings const& wanted) {
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  std::vector<result> results;
  for (auto const& model : shapes) {
    for (auto const type : types) {
      std::string const prefix = std::string{model.name} + "/" + std::string{name_of(type)} + "/";
      std::unique_ptr<layers_of_experts> layers;
      for (std::size_t const tokens : token_counts) {
        std::unique_ptr<rounds> all;
        double read = 0;
        std::vector<float> exact;
        for (auto const mode : {numerics::exact, numerics::fast}) {
          std::string const name =
              prefix + std::to_string(tokens) + "/" + std::string{name_of(mode)};
          if (name.find(wanted.only) == std::string::npos) { continue; }
          if (!layers) { layers = std::make_unique<layers_of_experts>(on, model, type); }
          if (!all) {
            all = std::make_unique<rounds>(on, *layers, tokens, tokens > 8 ? 2 : 20);
            read = median_of_reads(on, *layers, *all);
          }
          auto const made = measure(on, *layers, *all, mode, tokens);
          if (mode == numerics::exact) { exact = made.rows; }
          double const bytes = all->mean_unique() * static_cast<double>(layers->block_bytes);
          double const work = 6.0 * static_cast<double>(tokens * model.chosen * model.width) *
                              static_cast<double>(model.inner);
          double const bound = std::max(read, tokens > 8 ? work / (tensor_core_bound * 1e6) : 0.0);
          results.push_back({model.name,
                             std::string{name_of(type)},
                             std::string{name_of(mode)},
                             tokens,
                             model.present,
                             all->mean_unique(),
                             made.median,
                             read,
                             bytes / made.median / 1e3,
                             work / made.median / 1e6,
                             bound / made.median});
          auto const& one = results.back();
          std::printf("%-28s %9.1f us  read %8.1f us  %6.0f GB/s  %6.1f TFLOP/s  ratio %.3f",
                      name.c_str(),
                      one.median,
                      one.read,
                      one.weight_gb_per_s,
                      one.tflop_per_s,
                      one.bound_ratio);
          if (mode == numerics::fast && !exact.empty()) {
            std::printf("  off %.4f", distance(made.rows, exact));
          }
          std::printf("\n");
          std::fflush(stdout);
        }
      }
    }
  }
  if (!wanted.json.empty()) { write_json(wanted.json, wanted.commit, wanted.command, results); }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_expert_ffn: %s\n", e.what());
    return 1;
  }
}
