// Splits a template into tokens as jinja2 does: trim_blocks, lstrip_blocks, the signs - and + at
// tags, raw blocks and comments. Independent of statements.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

struct Options {
  bool trim_blocks = true;    // the newline after a block is not printed
  bool lstrip_blocks = true;  // blanks before a block at the start of its line are not printed
  bool keep_trailing_newline = false;
};

enum class TokenType : uint8_t {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  uint32_t line = 1;
  std::string text;  // data, name or operator as written; a string without quotes, unescaped
  Value number;
};

/// The last token is kEnd. Throws kInput through `work`, whose line is then that of the error.
std::vector<Token> tokenize(std::string_view source, const Options& options, Work& work);

}  // namespace lft::text::jinja
