// Parses tokens to the tree, by jinja2's grammar with its loop controls and transformers' {%
// generation %}. Blocks, inheritance and includes are refused by name.
#pragma once
#include <string_view>
#include <vector>

#include "src/text/jinja/syntax/ast.h"
#include "src/text/jinja/syntax/lexer.h"

namespace lft::text::jinja {

/// Throws kInput through `work`, whose line is then that of the error.
Program parse_program(std::vector<Token> tokens, Work& work);

class Parser {
 public:
  Parser(std::vector<Token> tokens, Work& work) : tokens_(std::move(tokens)), work_(work) {}
  Program run();

 private:
  using Words = std::vector<std::string_view>;
  /// Counts the nesting depth of rules.
  struct Level;

  // parser.cpp: tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool sees(TokenType type) const { return now().type == type; }
  bool sees_name(std::string_view name) const;
  bool sees_sign(std::string_view sign) const;
  bool skip_name(std::string_view name);
  bool skip_sign(std::string_view sign);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string take_name();
  void expect(TokenType type, const char* what);
  [[noreturn]] void fail(const std::string& what, uint32_t line) const;
  [[noreturn]] void unexpected(const std::string& expected) const;
  ExprPtr make(ExprKind kind, uint32_t line) const;
  /// Adds an operand; refuses an expression that becomes too deep.
  void add_part(Expr* expr, ExprPtr part) const;
  void grow(Expr* expr, const Expr* part) const;

  // parser_expressions.cpp
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary(bool with_attribute = false);
  ExprPtr parse_name(bool with_attribute);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_subscribed();
  ExprPtr parse_call(ExprPtr expr);
  void parse_arguments(Expr* expr);
  void parse_argument(CallArguments* out);
  ExprPtr parse_filter(ExprPtr expr, bool begins = false);
  ExprPtr parse_test(ExprPtr expr);
  bool begins_test_operand() const;
  std::string parse_dotted_name();
  bool ends_tuple(std::string_view end) const;
  /// `end`: a name that also ends it; `explicitly`: in brackets; `targets`: for an assignment.
  ExprPtr parse_tuple(bool with_condition = true, std::string_view end = {},
                      bool explicitly = false);
  ExprPtr parse_targets(std::string_view end, bool with_attribute);
  ExprPtr parse_name_target();
  void check_target(const Expr& target) const;

  // parser_statements.cpp
  Body parse_body(const Words& ends);
  Body parse_until(const Words& ends);
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_generation();
  std::unique_ptr<Stmt> parse_print();
  std::unique_ptr<Stmt> parse_loop_control(StmtKind kind);
  void parse_signature(Macro* macro);

  std::vector<Token> tokens_;
  Work& work_;
  size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  // loops around the statement, within the same function
  bool marks_generation_ = false;
};

struct Parser::Level {
  explicit Level(Parser& parser);
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Parser& parser_;
};

}  // namespace lft::text::jinja
