// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace terrace::observe {

/// Which experts the routers chose, token by token: what replays are made of.
struct routing_trace {
  std::uint32_t layers = 0;  ///< consecutive mixture layers, from first_layer on
  std::uint32_t top_k = 0;
  std::uint32_t experts = 0;  ///< per layer; at most 65536
  std::uint32_t first_layer = 0;
  std::vector<std::uint16_t> tokens;  ///< ids, [tokens]
  std::vector<std::uint16_t>
      chosen;  ///< experts, [tokens, layers, top_k]; each set distinct, by descending weight

  /// The set of one token and layer (`layer` counts from 0), [top_k].
  [[nodiscard]] std::span<std::uint16_t const> at(std::size_t token,
                                                  std::size_t layer) const noexcept {
    return std::span{chosen}.subspan((token * layers + layer) * top_k, top_k);
  }
  friend bool operator==(routing_trace const&, routing_trace const&) = default;
};

namespace detail {

inline constexpr std::string_view routing_magic = "RTRACE01";
inline constexpr std::size_t routing_header_bytes = 32;
inline constexpr std::uint64_t most_layers = 0xFF'FFFFU;  ///< block ids have 24 bits for the layer
inline constexpr std::uint64_t most_experts = 65'536;     ///< the file has 16 bits for an expert

struct routing_shape {
  std::uint64_t tokens, layers, top_k, experts, first_layer;
};

[[nodiscard]] inline std::string routing_sentence(std::string const& path,
                                                  std::string const& what) {
  return "the routing trace " + path + " " + what + "; record it again with --routing";
}

inline void check_shape(routing_shape const& shape, std::string const& path) {
  auto const refuse = [&path](std::string const& what) {
    throw format_error{routing_sentence(path, what)};
  };
  auto const number = [](std::uint64_t value) { return std::to_string(value); };
  if (shape.tokens == 0 || shape.layers == 0 || shape.top_k == 0 || shape.experts == 0) {
    refuse("has an empty dimension: " + number(shape.tokens) + " tokens, " + number(shape.layers) +
           " layers, top-" + number(shape.top_k) + " of " + number(shape.experts) + " experts");
  }
  if (shape.experts > most_experts) {
    refuse("claims " + number(shape.experts) + " experts, more than the format's " +
           number(most_experts));
  }
  if (shape.top_k > shape.experts) {
    refuse("claims top-" + number(shape.top_k) + " of only " + number(shape.experts) + " experts");
  }
  if (shape.first_layer + shape.layers > most_layers) {
    refuse("claims " + number(shape.layers) + " layers from layer " + number(shape.first_layer) +
           " on, beyond layer " + number(most_layers - 1));
  }
}

inline void check_choices(routing_trace const& trace, std::string const& path) {
  std::vector<std::size_t> last_set(trace.experts, 0);
  for (std::size_t at = 0; at < trace.chosen.size(); ++at) {
    std::uint16_t const expert = trace.chosen[at];
    std::size_t const set = at / trace.top_k;
    auto const where = [&] {
      return " at token " + std::to_string(set / trace.layers) + ", layer " +
             std::to_string(trace.first_layer + set % trace.layers);
    };
    if (expert >= trace.experts) {
      throw format_error{routing_sentence(path,
                                          "names expert " + std::to_string(expert) + " of " +
                                              std::to_string(trace.experts) + where())};
    }
    if (last_set[expert] == set + 1) {
      throw format_error{
          routing_sentence(path, "names expert " + std::to_string(expert) + " twice" + where())};
    }
    last_set[expert] = set + 1;
  }
}

[[nodiscard]] inline std::uint32_t little_u32(std::string_view bytes, std::size_t at) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) {
    value = (value << 8U) | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}
[[nodiscard]] inline std::uint16_t little_u16(std::string_view bytes, std::size_t at) noexcept {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[at]) |
                                    static_cast<unsigned>(static_cast<unsigned char>(bytes[at + 1]))
                                        << 8U);
}
inline void append_little(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) { out += static_cast<char>((value >> (8 * i)) & 0xFFU); }
}

/// The header's shape, checked against the length of the file.
[[nodiscard]] inline routing_shape read_routing_shape(std::string_view header,
                                                      std::uint64_t file_bytes,
                                                      std::string const& path) {
  if (header.substr(0, routing_magic.size()) != routing_magic) {
    throw format_error{"the file " + path +
                       " is not a routing trace: it does not begin with `RTRACE01`; "
                       "name a file written with --routing"};
  }
  routing_shape const shape{little_u32(header, 8),
                            little_u32(header, 12),
                            little_u32(header, 16),
                            little_u32(header, 20),
                            little_u32(header, 24)};
  check_shape(shape, path);
  if (little_u32(header, 28) != 0) {
    throw format_error{routing_sentence(
        path,
        "has " + std::to_string(little_u32(header, 28)) + " in its reserved field instead of 0")};
  }
  std::uint64_t const per_token = 2 * (1 + shape.layers * shape.top_k);  // below 2^42
  std::uint64_t const body = file_bytes - routing_header_bytes;
  if (body % per_token != 0 || body / per_token != shape.tokens) {
    throw format_error{
        routing_sentence(path,
                         "has " + std::to_string(file_bytes) + " bytes, but its header promises " +
                             std::to_string(shape.tokens) + " tokens of " +
                             std::to_string(per_token) + " bytes after a header of 32")};
  }
  return shape;
}

/// What follows the header.
[[nodiscard]] inline routing_trace read_routing_body(routing_shape const& shape,
                                                     std::string_view body,
                                                     std::string const& path) {
  routing_trace trace{static_cast<std::uint32_t>(shape.layers),
                      static_cast<std::uint32_t>(shape.top_k),
                      static_cast<std::uint32_t>(shape.experts),
                      static_cast<std::uint32_t>(shape.first_layer),
                      std::vector<std::uint16_t>(shape.tokens),
                      std::vector<std::uint16_t>(shape.tokens * shape.layers * shape.top_k)};
  std::size_t at = 0;
  for (auto* numbers : {&trace.tokens, &trace.chosen}) {
    for (std::uint16_t& each : *numbers) {
      each = little_u16(body, at);
      at += 2;
    }
  }
  check_choices(trace, path);
  return trace;
}

inline void check_holds_header(std::uint64_t file_bytes, std::string const& path) {
  if (file_bytes >= routing_header_bytes) { return; }
  throw format_error{"the file " + path + " is not a routing trace: it has " +
                     std::to_string(file_bytes) +
                     " bytes, less than a header of 32; name a file written with --routing"};
}

[[nodiscard]] inline io_error routing_io_error(std::string const& path, char const* what) {
  int const code = errno;
  return {"the routing trace " + path + " " + what + " (" + std::strerror(code) +
              "); check the path and the disk",
          code};
}

}  // namespace detail

/// Reads the bytes of a routing trace: char[8] "RTRACE01"; u32 tokens, layers, top_k, experts,
/// first_layer, 0; u16 token[tokens]; u16 expert[tokens][layers][top_k]; little endian. `path`
/// names it in errors.
/// Errors: format_error if it is not such a file, to the byte.
[[nodiscard]] inline routing_trace parse_routing_trace(std::string_view bytes,
                                                       std::string const& path) {
  detail::check_holds_header(bytes.size(), path);
  auto const shape = detail::read_routing_shape(bytes, bytes.size(), path);
  return detail::read_routing_body(shape, bytes.substr(detail::routing_header_bytes), path);
}

/// The same from a file, of which no more than the header is read unless its length fits it.
/// Errors: io_error if the file cannot be read, format_error as above.
[[nodiscard]] inline routing_trace read_routing_trace(std::string const& path) {
  errno = 0;
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) {
    throw io_error{"the routing trace " + path + " is a folder; name a file written with --routing",
                   EISDIR};
  }
  std::uint64_t const file_bytes = std::filesystem::file_size(path, failed);
  if (failed) {
    throw io_error{"the routing trace " + path + " cannot be opened (" + failed.message() +
                       "); check the path",
                   failed.value()};
  }
  std::ifstream file{path, std::ios::binary};
  if (!file) { throw detail::routing_io_error(path, "cannot be opened"); }
  detail::check_holds_header(file_bytes, path);
  std::string bytes(detail::routing_header_bytes, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw detail::routing_io_error(path, "cannot be read");
  }
  auto const shape = detail::read_routing_shape(bytes, file_bytes, path);
  bytes.resize(static_cast<std::size_t>(file_bytes) - detail::routing_header_bytes);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw detail::routing_io_error(path, "ends early");
  }
  return detail::read_routing_body(shape, bytes, path);
}

/// The content of a routing trace's file; `path` names it in errors.
/// Errors: contract_error if the vectors do not fit the dimensions, format_error if a set is not what the format allows.
[[nodiscard]] inline std::string routing_trace_bytes(std::string const& path,
                                                     routing_trace const& trace) {
  detail::check_shape(
      {trace.tokens.size(), trace.layers, trace.top_k, trace.experts, trace.first_layer}, path);
  std::uint64_t const set_numbers = std::uint64_t{trace.layers} * trace.top_k;
  if (trace.tokens.size() > 0xFFFF'FFFFU ||
      trace.chosen.size() / set_numbers != trace.tokens.size() ||
      trace.chosen.size() % set_numbers != 0) {
    throw contract_error{"the routing trace for " + path + " has " +
                         std::to_string(trace.chosen.size()) + " choices for " +
                         std::to_string(trace.tokens.size()) + " tokens of " +
                         std::to_string(set_numbers) + "; record every layer of every token"};
  }
  detail::check_choices(trace, path);
  std::string bytes{detail::routing_magic};
  bytes.reserve(detail::routing_header_bytes + 2 * (trace.tokens.size() + trace.chosen.size()));
  for (std::uint32_t const field : {static_cast<std::uint32_t>(trace.tokens.size()),
                                    trace.layers,
                                    trace.top_k,
                                    trace.experts,
                                    trace.first_layer,
                                    0U}) {
    detail::append_little(bytes, field, 4);
  }
  for (auto const* numbers : {&trace.tokens, &trace.chosen}) {
    for (std::uint16_t const each : *numbers) { detail::append_little(bytes, each, 2); }
  }
  return bytes;
}

/// Writes a routing trace, replacing the file.
/// Errors: as `routing_trace_bytes`; io_error if the file cannot be written.
inline void write_routing_trace(std::string const& path, routing_trace const& trace) {
  std::string const bytes = routing_trace_bytes(path, trace);
  errno = 0;
  std::ofstream file{path, std::ios::binary | std::ios::trunc};
  if (!file) { throw detail::routing_io_error(path, "cannot be opened for writing"); }
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) { throw detail::routing_io_error(path, "cannot be written"); }
}

}  // namespace terrace::observe
