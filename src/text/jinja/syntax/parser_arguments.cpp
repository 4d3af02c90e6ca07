// Calls, filters and tests with their arguments, tuples, and the targets of assignments.
#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/syntax/parser.h"

namespace lft::text::jinja {

ExprPtr Parser::parse_call(ExprPtr expr) {
  ExprPtr call = make(ExprKind::kCall, now().line);
  add_part(call.get(), std::move(expr));
  parse_arguments(call.get());
  return call;
}

void Parser::parse_arguments(Expr* expr) {
  expect_sign("(");
  expr->arguments = std::make_unique<CallArguments>();
  bool needs_comma = false;
  while (!sees_sign(")")) {
    if (needs_comma) expect_sign(",");
    if (needs_comma && sees_sign(")")) break;
    parse_argument(expr->arguments.get());
    needs_comma = true;
  }
  expect_sign(")");
  for (const ExprPtr& each : expr->arguments->positional) grow(expr, each.get());
  for (const auto& [name, each] : expr->arguments->named) grow(expr, each.get());
  grow(expr, expr->arguments->star.get());
  grow(expr, expr->arguments->double_star.get());
}

void Parser::parse_argument(CallArguments* out) {
  const uint32_t line = now().line;
  const auto ensure = [&](bool holds) {
    if (!holds) fail("the arguments of a call are in a wrong order", line);
  };
  if (skip_sign("*")) {
    ensure(!out->star && !out->double_star);
    out->star = parse_expression();
  } else if (skip_sign("**")) {
    ensure(!out->double_star);
    out->double_star = parse_expression();
  } else if (sees(TokenType::kName) && after().type == TokenType::kOperator &&
             after().text == "=") {
    ensure(!out->double_star);
    std::string name = take().text;
    for (const auto& known : out->named)
      if (known.first == name) fail("an argument is given twice: " + quote_text(name), line);
    ++at_;
    out->named.emplace_back(std::move(name), parse_expression());
  } else {
    ensure(!out->star && !out->double_star && out->named.empty());
    out->positional.push_back(parse_expression());
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = take_name();
  while (skip_sign(".")) name += "." + take_name();
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr expr, bool begins) {
  while (begins || sees_sign("|")) {
    if (!begins) ++at_;
    begins = false;
    ExprPtr filter = make(ExprKind::kFilter, now().line);
    filter->name = parse_dotted_name();
    add_part(filter.get(), std::move(expr));
    if (sees_sign("(")) parse_arguments(filter.get());
    expr = std::move(filter);
  }
  return expr;
}

bool Parser::begins_test_operand() const {
  if (sees_sign("(") || sees_sign("[") || sees_sign("{")) return true;
  if (sees(TokenType::kName)) return !sees_name("else") && !sees_name("or") && !sees_name("and");
  return sees(TokenType::kString) || sees(TokenType::kNumber);
}

ExprPtr Parser::parse_test(ExprPtr expr) {
  const uint32_t line = take().line;
  const bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::kTest, line);
  test->name = parse_dotted_name();
  add_part(test.get(), std::move(expr));
  if (sees_sign("(")) {
    parse_arguments(test.get());
  } else if (begins_test_operand()) {
    if (sees_name("is")) fail("tests by `is` cannot follow each other", line);
    test->arguments = std::make_unique<CallArguments>();
    ExprPtr operand = parse_postfix(parse_primary());
    grow(test.get(), operand.get());
    test->arguments->positional.push_back(std::move(operand));
  }
  if (!negated) return test;
  ExprPtr opposite = make(ExprKind::kNot, line);
  add_part(opposite.get(), std::move(test));
  return opposite;
}

bool Parser::ends_tuple(std::string_view end) const {
  return sees(TokenType::kPrintEnd) || sees(TokenType::kBlockEnd) || sees_sign(")") ||
         (!end.empty() && sees_name(end));
}

ExprPtr Parser::parse_tuple(bool with_condition, std::string_view end, bool explicitly) {
  ExprPtr tuple = make(ExprKind::kTuple, now().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->parts.empty()) expect_sign(",");
    if (ends_tuple(end)) break;
    add_part(tuple.get(), parse_expression(with_condition));
    if (!sees_sign(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (!explicitly) unexpected("an expression");
  return tuple;
}

ExprPtr Parser::parse_targets(std::string_view end, bool with_attribute) {
  ExprPtr tuple = make(ExprKind::kTuple, now().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->parts.empty()) expect_sign(",");
    if (ends_tuple(end)) break;
    add_part(tuple.get(), parse_primary(with_attribute));
    if (!sees_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && tuple->parts.empty()) unexpected("a name");
  ExprPtr target = is_tuple ? std::move(tuple) : std::move(tuple->parts[0]);
  check_target(*target);
  return target;
}

ExprPtr Parser::parse_name_target() {
  ExprPtr target = make(ExprKind::kName, now().line);
  target->name = take_name();
  check_target(*target);
  return target;
}

void Parser::check_target(const Expr& target) const {
  constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (target.kind == ExprKind::kAttributeTarget) return;
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& part : target.parts) check_target(*part);
    return;
  }
  if (target.kind != ExprKind::kName ||
      std::find(std::begin(kConstants), std::end(kConstants), target.name) != std::end(kConstants))
    fail("it assigns to what is no variable", target.line);
}

}  // namespace lft::text::jinja
