// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <terrace/format/catalog.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::runner {

/// The tokenizer of a model: from the GGUF's own keys, or from the files beside the safetensors.
[[nodiscard]] tokenize::tokenizer open_tokenizer(format::catalog const& catalog);

/// Ids of a plain text, led by a BOS where the file asks for one.
[[nodiscard]] std::vector<std::int32_t> encode_text(tokenize::tokenizer const& tokenizer,
                                                    std::string_view text);

/// Ids of the prompt that the options describe; `tokenizer` may be null for ids.
/// Errors: contract_error for an empty prompt or an option the chat template leaves without effect; io_error and
///         format_error for the files that are read; what the template throws.
[[nodiscard]] std::vector<std::int32_t> prompt_ids(prompt_options const& prompt,
                                                   tokenize::tokenizer const* tokenizer);

}  // namespace terrace::runner
