#include "src/text/jinja/run/walk.h"

namespace lft::text::jinja {
namespace {

void walk_macro(const Macro& macro, const NameVisitor& visit) {
  for (const ExprPtr& parameter : macro.parameters)
    visit(parameter->name, NameUse::kParameter, parameter->line);
  for (const ExprPtr& each : macro.defaults) walk_expr(each.get(), visit);
  walk_body(macro.body, visit);
}

void walk_with(const With& with, const NameVisitor& visit) {
  for (const ExprPtr& target : with.targets) walk_target(*target, NameUse::kParameter, visit);
  for (const ExprPtr& value : with.values) walk_expr(value.get(), visit);
  walk_body(with.body, visit);
}

void walk_if(const If& choice, const NameVisitor& visit) {
  for (const If::Branch& branch : choice.branches) {
    walk_expr(branch.test.get(), visit);
    walk_body(branch.body, visit);
  }
  walk_body(choice.otherwise, visit);
}

void walk_stmt(const Stmt& stmt, const NameVisitor& visit) {
  switch (stmt.kind) {
    case StmtKind::kOutput:
      for (const ExprPtr& part : static_cast<const Output&>(stmt).parts)
        walk_expr(part.get(), visit);
      return;
    case StmtKind::kFor:
      return walk_for(static_cast<const For&>(stmt), visit);
    case StmtKind::kIf:
      return walk_if(static_cast<const If&>(stmt), visit);
    case StmtKind::kSet: {
      const auto& set = static_cast<const Set&>(stmt);
      walk_target(*set.target, NameUse::kStore, visit);
      return walk_expr(set.value.get(), visit);
    }
    case StmtKind::kSetBlock: {
      const auto& set = static_cast<const SetBlock&>(stmt);
      walk_target(*set.target, NameUse::kStore, visit);
      walk_expr(set.filter.get(), visit);
      return walk_body(set.body, visit);
    }
    case StmtKind::kMacro:
      return walk_macro(static_cast<const Macro&>(stmt), visit);
    case StmtKind::kCallBlock: {
      const auto& block = static_cast<const CallBlock&>(stmt);
      walk_expr(block.call.get(), visit);
      return walk_macro(*block.caller, visit);
    }
    case StmtKind::kFilterBlock: {
      const auto& block = static_cast<const FilterBlock&>(stmt);
      walk_body(block.body, visit);
      return walk_expr(block.filter.get(), visit);
    }
    case StmtKind::kWith:
      return walk_with(static_cast<const With&>(stmt), visit);
    case StmtKind::kGeneration:
      return walk_body(static_cast<const Generation&>(stmt).body, visit);
    case StmtKind::kBreak:
    case StmtKind::kContinue:
      return;
  }
}

}  // namespace

void walk_expr(const Expr* expr, const NameVisitor& visit) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kName) return visit(expr->name, NameUse::kLoad, expr->line);
  for (const ExprPtr& part : expr->parts) walk_expr(part.get(), visit);
  if (!expr->arguments) return;
  for (const ExprPtr& each : expr->arguments->positional) walk_expr(each.get(), visit);
  for (const auto& [name, each] : expr->arguments->named) walk_expr(each.get(), visit);
  walk_expr(expr->arguments->star.get(), visit);
  walk_expr(expr->arguments->double_star.get(), visit);
}

void walk_target(const Expr& target, NameUse use, const NameVisitor& visit) {
  if (target.kind == ExprKind::kName) return visit(target.name, use, target.line);
  if (target.kind == ExprKind::kAttributeTarget)
    return visit(target.parts[0]->name, NameUse::kLoad, target.line);
  for (const ExprPtr& part : target.parts) walk_target(*part, use, visit);
}

void walk_for(const For& loop, const NameVisitor& visit) {
  walk_target(*loop.target, NameUse::kStore, visit);
  walk_expr(loop.iterable.get(), visit);
  walk_body(loop.body, visit);
  walk_body(loop.otherwise, visit);
  walk_expr(loop.test.get(), visit);
}

void walk_body(const Body& body, const NameVisitor& visit) {
  for (const auto& stmt : body) walk_stmt(*stmt, visit);
}

std::set<std::string> undeclared(const Body& body, std::set<std::string> names) {
  std::set<std::string> found;
  walk_body(body, [&](const std::string& name, NameUse use, uint32_t) {
    if (use != NameUse::kLoad) {
      names.erase(name);
    } else if (names.contains(name)) {
      found.insert(name);
    }
  });
  return found;
}

}  // namespace lft::text::jinja
