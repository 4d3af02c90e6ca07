// Visits the names in a part of a template, in jinja2's order.
#pragma once
#include <functional>
#include <set>
#include <string>

#include "src/text/jinja/syntax/ast.h"

namespace lft::text::jinja {

enum class NameUse { kLoad, kStore, kParameter };
using NameVisitor = std::function<void(const std::string& name, NameUse use, uint32_t line)>;

void walk_expr(const Expr* expr, const NameVisitor& visit);
void walk_target(const Expr& target, NameUse use, const NameVisitor& visit);
void walk_body(const Body& body, const NameVisitor& visit);
void walk_for(const For& loop, const NameVisitor& visit);

/// The names in `names` that the body reads before it sets them.
std::set<std::string> undeclared(const Body& body, std::set<std::string> names);

}  // namespace lft::text::jinja
