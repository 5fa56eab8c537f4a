// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include "text_file.hpp"

#include <terrace/core/error.hpp>

#include <fmt/format.h>

#include <string>

namespace terrace::runner {

tokenize::tokenizer open_tokenizer(format::catalog const& catalog) {
  if (catalog.kind() == format::container::gguf) {
    return tokenize::tokenizer::from_metadata(catalog.meta());
  }
  return tokenize::tokenizer::from_folder(catalog.folder(), catalog.architecture());
}

std::vector<std::int32_t> encode_text(tokenize::tokenizer const& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text, /*parse_special=*/true);
  if (tokenizer.add_bos()) { ids.insert(ids.begin(), tokenizer.bos().value()); }
  return ids;
}

std::vector<std::int32_t> prompt_ids(prompt_options const& prompt,
                                     tokenize::tokenizer const* tokenizer) {
  if (prompt.ids) { return *prompt.ids; }
  auto const text = prompt.text ? *prompt.text : read_text_file(*prompt.file);
  auto ids = encode_text(*tokenizer, text);
  if (ids.empty()) {
    throw contract_error{fmt::format(
        "the prompt has no tokens: the text is empty and {} asks for no BOS; give some text",
        tokenizer->source())};
  }
  return ids;
}

}  // namespace terrace::runner
