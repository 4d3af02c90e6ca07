#include "src/text/jinja/syntax/parser.h"

#include <algorithm>

#include "src/base/errors.h"

namespace lft::text::jinja {
namespace {

constexpr int kMaxLevel = 150;   // nested rules
constexpr int kMaxHeight = 200;  // height of an expression's tree

std::string token_name(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "text";
    case TokenType::kPrintBegin:
      return "{{";
    case TokenType::kPrintEnd:
      return "}}";
    case TokenType::kBlockBegin:
      return "{%";
    case TokenType::kBlockEnd:
      return "%}";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return quote_text(token.text, 40);
  }
}

}  // namespace

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (++parser_.level_ > kMaxLevel) {
    const uint32_t line = parser_.now().line;
    --parser_.level_;
    parser_.fail("it is nested too deeply", line);
  }
}

Token Parser::take() {
  if (sees(TokenType::kEnd)) return now();
  return std::move(tokens_[at_++]);
}

bool Parser::sees_name(std::string_view name) const {
  return sees(TokenType::kName) && now().text == name;
}

bool Parser::sees_sign(std::string_view sign) const {
  return sees(TokenType::kOperator) && now().text == sign;
}

bool Parser::skip_name(std::string_view name) {
  const bool found = sees_name(name);
  if (found) ++at_;
  return found;
}

bool Parser::skip_sign(std::string_view sign) {
  const bool found = sees_sign(sign);
  if (found) ++at_;
  return found;
}

void Parser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected(quote_text(sign));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(quote_text(name));
}

std::string Parser::take_name() {
  if (!sees(TokenType::kName)) unexpected("a name");
  return take().text;
}

void Parser::expect(TokenType type, const char* what) {
  if (!sees(type)) unexpected(what);
  ++at_;
}

void Parser::fail(const std::string& what, uint32_t line) const {
  work_.at(line);
  work_.refuse("the chat template is not valid Jinja: " + what);
}

void Parser::unexpected(const std::string& expected) const {
  work_.at(now().line);
  work_.refuse("the chat template is not valid Jinja", token_name(now()), expected);
}

ExprPtr Parser::make(ExprKind kind, uint32_t line) const {
  return std::make_unique<Expr>(kind, line);
}

void Parser::grow(Expr* expr, const Expr* part) const {
  if (part == nullptr) return;
  expr->height = std::max<uint16_t>(expr->height, static_cast<uint16_t>(part->height + 1));
  if (expr->height > kMaxHeight) fail("an expression is nested too deeply", expr->line);
}

void Parser::add_part(Expr* expr, ExprPtr part) const {
  grow(expr, part.get());
  expr->parts.push_back(std::move(part));
}

Program Parser::run() {
  Program program;
  program.body = parse_body({});
  program.marks_generation = marks_generation_;
  return program;
}

Program parse_program(std::vector<Token> tokens, Work& work) {
  return Parser(std::move(tokens), work).run();
}

}  // namespace lft::text::jinja
