// Expressions, from conditions (lowest precedence) to names, calls, filters and tests.
#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/syntax/parser.h"

namespace lft::text::jinja {

ExprPtr Parser::parse_expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr Parser::parse_condition() {
  uint32_t line = now().line;
  ExprPtr expr = parse_or();
  while (skip_name("if")) {
    ExprPtr condition = make(ExprKind::kCondition, line);
    add_part(condition.get(), parse_or());
    add_part(condition.get(), std::move(expr));
    if (skip_name("else")) add_part(condition.get(), parse_expression());
    expr = std::move(condition);
    line = now().line;
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (sees_name("or")) {
    ExprPtr expr = make(ExprKind::kOr, take().line);
    add_part(expr.get(), std::move(left));
    add_part(expr.get(), parse_and());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (sees_name("and")) {
    ExprPtr expr = make(ExprKind::kAnd, take().line);
    add_part(expr.get(), std::move(left));
    add_part(expr.get(), parse_not());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!sees_name("not")) return parse_compare();
  const Level level(*this);
  ExprPtr expr = make(ExprKind::kNot, take().line);
  add_part(expr.get(), parse_not());
  return expr;
}

ExprPtr Parser::parse_compare() {
  constexpr std::pair<std::string_view, Comparison> kSigns[] = {
      {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
      {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
  const uint32_t line = now().line;
  ExprPtr first = parse_sum();
  ExprPtr expr;
  while (true) {
    const auto* const sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                          [&](const auto& each) { return sees_sign(each.first); });
    Comparison comparison;
    if (sign != std::end(kSigns)) {
      comparison = sign->second;
      ++at_;
    } else if (skip_name("in")) {
      comparison = Comparison::kIn;
    } else if (sees_name("not") && after().type == TokenType::kName && after().text == "in") {
      comparison = Comparison::kNotIn;
      at_ += 2;
    } else {
      return expr ? std::move(expr) : std::move(first);
    }
    if (!expr) {
      expr = make(ExprKind::kCompare, line);
      add_part(expr.get(), std::move(first));
    }
    expr->comparisons.push_back(comparison);
    add_part(expr.get(), parse_sum());
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (sees_sign("+") || sees_sign("-")) {
    const Operator sign = sees_sign("+") ? Operator::kAdd : Operator::kSub;
    ExprPtr expr = make(ExprKind::kBinary, take().line);
    expr->sign = sign;
    add_part(expr.get(), std::move(left));
    add_part(expr.get(), parse_concat());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!sees_sign("~")) return first;
  ExprPtr expr = make(ExprKind::kConcat, now().line);
  add_part(expr.get(), std::move(first));
  while (skip_sign("~")) add_part(expr.get(), parse_product());
  return expr;
}

ExprPtr Parser::parse_product() {
  constexpr std::pair<std::string_view, Operator> kSigns[] = {{"*", Operator::kMul},
                                                              {"/", Operator::kDiv},
                                                              {"//", Operator::kFloorDiv},
                                                              {"%", Operator::kMod}};
  ExprPtr left = parse_power();
  while (true) {
    const auto* const sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                          [&](const auto& each) { return sees_sign(each.first); });
    if (sign == std::end(kSigns)) return left;
    ExprPtr expr = make(ExprKind::kBinary, take().line);
    expr->sign = sign->second;
    add_part(expr.get(), std::move(left));
    add_part(expr.get(), parse_power());
    left = std::move(expr);
  }
}

/// Left-associative, unlike in Python.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (sees_sign("**")) {
    ExprPtr expr = make(ExprKind::kBinary, take().line);
    expr->sign = Operator::kPow;
    add_part(expr.get(), std::move(left));
    add_part(expr.get(), parse_unary());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (sees_sign("-") || sees_sign("+")) {
    const Level level(*this);
    const ExprKind kind = sees_sign("-") ? ExprKind::kNegate : ExprKind::kPosit;
    expr = make(kind, take().line);
    add_part(expr.get(), parse_unary(false));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_name(bool with_attribute) {
  const Token token = take();
  ExprPtr expr = make(ExprKind::kConstant, token.line);
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->constant = Value::of(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    expr->constant = Value::none();
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
    if (with_attribute && skip_sign(".")) {
      ExprPtr target = make(ExprKind::kAttributeTarget, token.line);
      target->name = take_name();
      add_part(target.get(), std::move(expr));
      return target;
    }
  }
  return expr;
}

ExprPtr Parser::parse_primary(bool with_attribute) {
  const uint32_t line = now().line;
  ExprPtr expr = make(ExprKind::kConstant, line);
  switch (now().type) {
    case TokenType::kName:
      return parse_name(with_attribute);
    case TokenType::kString: {
      std::string text;
      while (sees(TokenType::kString)) text += take().text;
      expr->constant = Value::of(Text(std::move(text)));
      return expr;
    }
    case TokenType::kNumber:
      expr->constant = take().number;
      return expr;
    default:
      break;
  }
  if (skip_sign("(")) {
    const Level level(*this);
    expr = parse_tuple(true, {}, true);
    expect_sign(")");
    return expr;
  }
  if (sees_sign("[")) return parse_list();
  if (sees_sign("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(ExprKind::kList, take().line);
  while (!sees_sign("]")) {
    if (!list->parts.empty()) expect_sign(",");
    if (sees_sign("]")) break;
    add_part(list.get(), parse_expression());
  }
  expect_sign("]");
  return list;
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(ExprKind::kDict, take().line);
  while (!sees_sign("}")) {
    if (!dict->parts.empty()) expect_sign(",");
    if (sees_sign("}")) break;
    add_part(dict.get(), parse_expression());
    expect_sign(":");
    add_part(dict.get(), parse_expression());
  }
  expect_sign("}");
  return dict;
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (sees_sign(".") || sees_sign("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (sees_sign("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (sees_sign("|")) {
      expr = parse_filter(std::move(expr));
    } else if (sees_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (sees_sign("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  const Token token = take();
  if (token.text == ".") {
    if (sees(TokenType::kName)) {
      ExprPtr attribute = make(ExprKind::kAttribute, token.line);
      attribute->name = take().text;
      add_part(attribute.get(), std::move(expr));
      return attribute;
    }
    if (!sees(TokenType::kNumber) || !now().number.is(Kind::kInt)) unexpected("a name or a number");
    ExprPtr item = make(ExprKind::kItem, token.line);
    ExprPtr index = make(ExprKind::kConstant, token.line);
    index->constant = take().number;
    add_part(item.get(), std::move(expr));
    add_part(item.get(), std::move(index));
    return item;
  }
  ExprPtr item = make(ExprKind::kItem, token.line);
  add_part(item.get(), std::move(expr));
  std::vector<ExprPtr> keys;
  while (!sees_sign("]")) {
    if (!keys.empty()) expect_sign(",");
    keys.push_back(parse_subscribed());
  }
  expect_sign("]");
  if (keys.size() == 1) {
    add_part(item.get(), std::move(keys[0]));
    return item;
  }
  ExprPtr tuple = make(ExprKind::kTuple, token.line);
  for (ExprPtr& key : keys) {
    if (key->kind == ExprKind::kSlice) fail("a slice has no place in a tuple", key->line);
    add_part(tuple.get(), std::move(key));
  }
  add_part(item.get(), std::move(tuple));
  return item;
}

ExprPtr Parser::parse_subscribed() {
  ExprPtr slice = make(ExprKind::kSlice, now().line);
  const auto has_bound = [&] { return !sees_sign(":") && !sees_sign("]") && !sees_sign(","); };
  if (sees_sign(":")) {
    add_part(slice.get(), nullptr);
  } else {
    ExprPtr expr = parse_expression();
    if (!sees_sign(":")) return expr;
    add_part(slice.get(), std::move(expr));
  }
  expect_sign(":");
  add_part(slice.get(), has_bound() ? parse_expression() : nullptr);
  const bool has_step = skip_sign(":");
  add_part(slice.get(), has_step && has_bound() ? parse_expression() : nullptr);
  return slice;
}

}  // namespace lft::text::jinja
