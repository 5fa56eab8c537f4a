// SPDX-License-Identifier: Apache-2.0
// Products with the same weights by terrace and by ggml, in turn, in one process.
//
//   peer_matmul LIBGGML_BASE LIBGGML_CPU [--threads N] [--tokens N] [--rows N] [--cols N] [--pairs
//   N]
//               [--gib F] [--json FILE] [TYPE...]
//
// One token runs over `gib` GiB of matrices, so that each is read from memory; more tokens reuse
// two matrices. ggml is measured with weights as they lie in the file and, where it has one, in its
// own order; the faster counts.

#include "ggml_library.hpp"
#include "kernel/support.hpp"

#include <terrace/kernel/cpu/cpu.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace terrace;
using clock_type = std::chrono::steady_clock;

struct options {
  std::string base, cpu, json;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::size_t tokens = 1, rows = 4096, cols = 4096, pairs = 15;
  double gib = 1.0;
  std::vector<quant_type> types;
};

options parse(int argc, char** argv) {
  options o;
  std::vector<std::string> const arguments(argv + 1, argv + argc);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string const& word = arguments[i];
    if (word.starts_with("--")) {
      if (i + 1 == arguments.size()) { throw std::runtime_error{word + " needs a value"}; }
      std::string const& value = arguments[++i];
      if (word == "--json") {
        o.json = value;
      } else if (word == "--threads") {
        o.threads = std::stoi(value);
      } else if (word == "--gib") {
        o.gib = std::stod(value);
      } else if (word == "--tokens" || word == "--rows" || word == "--cols" || word == "--pairs") {
        auto& number = word == "--tokens" ? o.tokens
                       : word == "--rows" ? o.rows
                       : word == "--cols" ? o.cols
                                          : o.pairs;
        number = std::stoul(value);
      } else {
        throw std::runtime_error{"there is no option " + word};
      }
    } else if (o.base.empty()) {
      o.base = word;
    } else if (o.cpu.empty()) {
      o.cpu = word;
    } else if (auto const type = quant_type_named(word)) {
      o.types.push_back(*type);
    } else {
      throw std::runtime_error{"there is no type " + word};
    }
  }
  if (o.cpu.empty()) {
    throw std::runtime_error{"usage: peer_matmul LIBGGML_BASE LIBGGML_CPU [options] [TYPE...]"};
  }
  if (o.types.empty()) {
    o.types = {quant_type::q8_0,
               quant_type::q4_0,
               quant_type::q4_1,
               quant_type::q4_k,
               quant_type::q5_k,
               quant_type::q6_k,
               quant_type::iq4_nl,
               quant_type::iq4_xs,
               quant_type::mxfp4,
               quant_type::f16,
               quant_type::bf16};
  }
  return o;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(),
                   values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct result {
  quant_type type;
  double bytes;
  double ours_s;
  double plain_s;
  std::optional<double> repacked_s;
  double ratio;       ///< median over pairs of the faster ggml time by ours
  double difference;  ///< relative, between the results
};

/// Products per turn, after one that wakes the threads and does not count.
constexpr std::size_t turn = 8;
/// Before each turn: idle threads of the library whose turn is over poll for a while, on a core
/// that the other one needs.
constexpr auto settle = std::chrono::milliseconds{60};

template <class F>
double time_turn(std::size_t& next, std::size_t count, F&& product) {
  auto const one = [&] {
    product(next);
    next = (next + 1) % count;
  };
  std::this_thread::sleep_for(settle);
  one();
  auto const start = clock_type::now();
  for (std::size_t i = 0; i < turn; ++i) { one(); }
  return std::chrono::duration<double>(clock_type::now() - start).count() / turn;
}

std::unique_ptr<peer::ggml_products> try_products(peer::ggml_library const& ggml,
                                                  options const& o,
                                                  peer::ggml_products::shape const& shape,
                                                  std::size_t count,
                                                  peer::ggml_weights layout,
                                                  test::matrix const& one,
                                                  std::vector<float> const& x) {
  try {
    auto products = std::make_unique<peer::ggml_products>(ggml, o.threads, shape, count, layout);
    for (std::size_t i = 0; i < count; ++i) {
      products->set_weights(i, one.view.data, one.data.size() - 1);
    }
    products->set_x(x.data(), x.size());
    return products;
  } catch (std::runtime_error const&) { return nullptr; }
}

/// Types that ggml reorders at load on x86; for others its repacked buffer cannot hold weights.
bool has_repacked_layout(quant_type type) {
  return type == quant_type::q4_0 || type == quant_type::q4_k || type == quant_type::iq4_nl;
}

result measure(peer::ggml_library const& ggml,
               options const& o,
               quant_type type,
               kernel::cpu::thread_pool& pool) {
  test::generator random{1};
  auto const one = test::random_matrix(type, o.rows, o.cols, random);
  std::size_t const bytes = one.data.size() - 1;
  auto const many =
      static_cast<std::size_t>(o.gib * static_cast<double>(1U << 30U) / static_cast<double>(bytes));
  std::size_t const count = o.tokens == 1 ? std::max<std::size_t>(2, many) : 2;
  auto const x = test::random_floats(random, o.tokens * o.cols);
  std::vector<std::byte> data(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(data.data() + i * bytes, one.view.data, bytes);
  }

  peer::ggml_products::shape const shape{static_cast<int>(type),
                                         static_cast<std::int64_t>(o.rows),
                                         static_cast<std::int64_t>(o.cols),
                                         static_cast<std::int64_t>(o.tokens)};
  auto const plain = try_products(ggml, o, shape, count, peer::ggml_weights::plain, one, x);
  auto const repacked =
      has_repacked_layout(type)
          ? try_products(ggml, o, shape, count, peer::ggml_weights::repacked, one, x)
          : nullptr;
  if (!plain) { throw std::runtime_error{"ggml cannot multiply " + std::string{name_of(type)}}; }

  std::vector<float> y(o.tokens * o.rows);
  std::vector<float> theirs(y.size());
  kernel::cpu::activations input;
  auto const ours = [&](std::size_t i) {
    matrix_view w = one.view;
    w.data = data.data() + i * bytes;
    input.assign(pool, numerics::fast, x.data(), o.tokens, o.cols, o.cols);
    kernel::cpu::matmul(pool, w, input, y.data(), o.rows);
  };
  std::vector<double> ours_s, plain_s, repacked_s, ratios;
  std::size_t next[3] = {};
  for (std::size_t pair = 0; pair <= o.pairs; ++pair) {
    double const a = time_turn(next[0], count, ours);
    double const b = time_turn(next[1], count, [&](std::size_t i) { plain->compute(i); });
    double const c =
        repacked ? time_turn(next[2], count, [&](std::size_t i) { repacked->compute(i); }) : b;
    if (pair == 0) { continue; }  // warms up
    ours_s.push_back(a);
    plain_s.push_back(b);
    if (repacked) { repacked_s.push_back(c); }
    ratios.push_back(std::min(b, c) / a);
  }
  plain->get_y(0, theirs.data(), theirs.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    error += std::pow(double{y[i]} - double{theirs[i]}, 2);
    norm += std::pow(double{y[i]}, 2);
  }
  result r{type,
           static_cast<double>(bytes),
           median(ours_s),
           median(plain_s),
           std::nullopt,
           median(ratios),
           std::sqrt(error / norm)};
  if (repacked) { r.repacked_s = median(repacked_s); }
  return r;
}

void print(options const& o, result const& r) {
  double const unit =
      o.tokens == 1 ? r.bytes / 1e9 : static_cast<double>(o.rows * o.cols * o.tokens) / 1e9;
  char const* const name = o.tokens == 1 ? "GB/s" : "GMAC/s";
  std::printf("%-8s terrace %8.2f %s   ggml %8.2f",
              std::string{name_of(r.type)}.c_str(),
              unit / r.ours_s,
              name,
              unit / r.plain_s);
  if (r.repacked_s) { std::printf(", repacked %8.2f", unit / *r.repacked_s); }
  std::printf("   ratio %5.2f   difference %.4f\n", r.ratio, r.difference);
  std::fflush(stdout);
}

void write_json(options const& o, std::vector<result> const& results) {
  std::ofstream out{o.json};
  out << "{\"threads\": " << o.threads << ", \"tokens\": " << o.tokens << ", \"rows\": " << o.rows
      << ", \"cols\": " << o.cols << ", \"pairs\": " << o.pairs << ", \"results\": [";
  char const* separator = "";
  for (auto const& r : results) {
    out << separator << "\n  {\"type\": \"" << name_of(r.type) << "\", \"bytes\": " << r.bytes
        << ", \"terrace_s\": " << r.ours_s << ", \"ggml_s\": " << r.plain_s;
    if (r.repacked_s) { out << ", \"ggml_repacked_s\": " << *r.repacked_s; }
    out << ", \"ratio\": " << r.ratio << ", \"difference\": " << r.difference << "}";
    separator = ",";
  }
  out << "\n]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    options const o = parse(argc, argv);
    peer::ggml_library const ggml{o.base, o.cpu};
    kernel::cpu::thread_pool pool{o.threads};
    std::vector<result> results;
    for (auto const type : o.types) {
      results.push_back(measure(ggml, o, type, pool));
      print(o, results.back());
    }
    if (!o.json.empty()) { write_json(o, results); }
    return 0;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "peer_matmul: %s\n", failure.what());
    return 1;
  }
}
