// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/metadata.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace toy {

/// One byte in GPT-2's spelling.
inline std::string letter(int byte) {
  bool const printable =
      (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  int code = byte;
  if (!printable) {
    code = 0x100;
    for (int other = 0; other < byte; ++other) {
      code += (other >= 0x21 && other <= 0x7E) || (other >= 0xA1 && other <= 0xAC) || other >= 0xAE
                  ? 0
                  : 1;
    }
  }
  std::string text;
  terrace::tokenize::append_utf8(text, static_cast<char32_t>(code));
  return text;
}

/// GGUF keys of a tokenizer whose id 0-255 are the bytes, followed by `pieces` (made by `merges`)
/// and `control` tokens.
inline terrace::metadata gguf_keys(std::string const& pre,
                                   std::vector<std::string> const& pieces = {},
                                   std::vector<std::string> const& merges = {},
                                   std::vector<std::string> const& control = {},
                                   std::vector<std::string> const& user_defined = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) { tokens.push_back(letter(byte)); }
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  std::vector<std::int64_t> types(tokens.size(), 1);
  tokens.insert(tokens.end(), control.begin(), control.end());
  types.resize(tokens.size(), 3);
  tokens.insert(tokens.end(), user_defined.begin(), user_defined.end());
  types.resize(tokens.size(), 4);
  terrace::metadata file{"toy.gguf"};
  file.set("tokenizer.ggml.model", std::string{"gpt2"});
  file.set("tokenizer.ggml.pre", pre);
  file.set("tokenizer.ggml.tokens", tokens);
  file.set("tokenizer.ggml.token_type", types);
  file.set("tokenizer.ggml.merges", merges);
  file.set("tokenizer.ggml.add_bos_token", false);
  return file;
}

}  // namespace toy
