// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

struct expression;
using expression_ptr = std::unique_ptr<expression>;
struct statement;
using block = std::vector<statement>;

enum class expression_kind : std::uint8_t {
  constant,     ///< constant
  name,         ///< name
  list,         ///< parts
  tuple,        ///< parts
  dict,         ///< parts: key, value, key, value ...
  attribute,    ///< parts[0].name
  item,         ///< parts[0][parts[1]]
  slice,        ///< parts[0][parts[1]:parts[2]:parts[3]], each of the three may be null
  call,         ///< parts[0](parts[1..], named)
  filter,       ///< parts[0] | name(parts[1..], named); parts[0] is null in a filter block
  test,         ///< parts[0] is name(parts[1..])
  negation,     ///< not parts[0]
  sign,         ///< name parts[0], + or -
  arithmetic,   ///< parts[0] name parts[1]
  concat,       ///< parts, joined as text
  comparison,   ///< parts[0] operators[0] parts[1] operators[1] parts[2] ..., as in Python
  both,         ///< parts[0] and parts[1]
  either,       ///< parts[0] or parts[1]
  conditional,  ///< parts[0] if parts[1] else parts[2], which may be null
};

struct expression {
  expression_kind kind = expression_kind::constant;
  int line = 1;
  int depth = 1;  ///< of the tree below; whatever walks it recurses
  std::string name;
  value constant;
  std::vector<expression_ptr> parts;
  std::vector<std::pair<std::string, expression_ptr>> named;
  std::vector<std::string> operators;
};

/// What `set` assigns to: a variable, or an attribute of a namespace.
struct target {
  std::string name;
  std::string attribute;  ///< empty for a variable
};

/// A parameter of a macro; no default means required.
struct parameter {
  std::string name;
  expression_ptr otherwise;
};

enum class statement_kind : std::uint8_t {
  text,    ///< text
  output,  ///< values[0]
  branch,  ///< if values[0] bodies[0] elif values[1] bodies[1] ...; one body more than values is
           ///< the else
  loop,  ///< for targets in values[0] if values[1] (may be null): bodies[0], else bodies[1] (may be
         ///< missing)
  assign,   ///< set targets = values[0]
  capture,  ///< set targets[0] = what bodies[0] prints, through the filter values[0] (may be null)
  macro,    ///< macro text(parameters): bodies[0]
  call_block,    ///< call(parameters) values[0]: bodies[0] is the caller
  filter_block,  ///< filter values[0]: bodies[0]
  scope,         ///< bodies[0] with variables of its own: targets = values (`with`)
  break_loop,
  next_round,
};

struct statement {
  statement_kind kind = statement_kind::text;
  int line = 1;
  std::string text;
  std::vector<target> targets;
  std::vector<parameter> parameters;
  std::vector<expression_ptr> values;
  std::vector<block> bodies;
};

}  // namespace terrace::tokenize::jinja
