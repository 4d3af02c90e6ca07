// Expressions other than calls.
#include "src/text/jinja/library/access.h"
#include "src/text/jinja/run/machine.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/items.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {

const Value& Machine::look(const Expr& expr, Value* space) {
  if (expr.kind == ExprKind::kConstant) {
    work_.step();
    return expr.constant;
  }
  if (expr.kind == ExprKind::kName) {
    work_.step();
    const Value& variable = slot(expr.variable);
    if (!variable.is_missing()) return variable;
  }
  *space = eval(expr);
  return *space;
}

Value Machine::eval(const Expr& expr) {
  const Deeper deeper(*this);
  work_.step();
  work_.at(expr.line);
  Value left, right;
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return eval_name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_sequence(expr);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kNegate:
      return negate(look(*expr.parts[0], &left), work_);
    case ExprKind::kPosit:
      return posit(look(*expr.parts[0], &left), work_);
    case ExprKind::kNot:
      return Value::of(!truth(look(*expr.parts[0], &left)));
    case ExprKind::kBinary: {
      const Value& a = look(*expr.parts[0], &left);
      const Value& b = look(*expr.parts[1], &right);
      work_.at(expr.line);
      return calculate(expr.sign, a, b, work_);
    }
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kAnd:
      left = eval(*expr.parts[0]);
      return truth(left) ? eval(*expr.parts[1]) : left;
    case ExprKind::kOr:
      left = eval(*expr.parts[0]);
      return truth(left) ? left : eval(*expr.parts[1]);
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kCondition:
      return eval_condition(expr);
    case ExprKind::kAttribute:
      return attribute(look(*expr.parts[0], &left), expr);
    case ExprKind::kItem:
      return eval_item(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr);
    case ExprKind::kTest:
      return eval_test(expr);
    default:
      work_.unsupported("expression", "a slice by itself");
  }
}

Value Machine::eval_name(const Expr& expr) {
  const Value& value = slot(expr.variable);
  return value.is_missing() ? Value::undefined(expr.name.c_str()) : value;
}

Value Machine::eval_sequence(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const ExprPtr& part : expr.parts) items.push_back(eval(*part));
  return expr.kind == ExprKind::kList ? Value::list(std::move(items), work_)
                                      : Value::tuple(std::move(items), work_);
}

Value Machine::eval_dict(const Expr& expr) {
  work_.take(sizeof(DictObject));
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    const Value key = eval(*expr.parts[i]);
    check_hashable(key, work_);
    dict->set(key, eval(*expr.parts[i + 1]), work_);
  }
  return make_dict(std::move(dict));
}

bool Machine::compare(Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEq:
      return equals(a, b, work_);
    case Comparison::kNe:
      return !equals(a, b, work_);
    case Comparison::kLt:
      return less(a, b, work_, "<");
    case Comparison::kGt:
      return less(b, a, work_, ">");
    case Comparison::kLe:
      return less_or_equal(a, b, work_, "<=");
    case Comparison::kGe:
      return less_or_equal(b, a, work_, ">=");
    case Comparison::kIn:
      return contains(b, a, work_);
    default:
      return !contains(b, a, work_);
  }
}

Value Machine::eval_compare(const Expr& expr) {
  Value spaces[2];
  const Value* left = &look(*expr.parts[0], &spaces[0]);
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    Value& space = spaces[(i + 1) % 2];
    const Value* right = &look(*expr.parts[i + 1], &space);
    work_.at(expr.line);
    if (!compare(expr.comparisons[i], *left, *right)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Value Machine::eval_concat(const Expr& expr) {
  TextBuilder out(work_);
  for (const ExprPtr& part : expr.parts) {
    Value space;
    print(look(*part, &space), &out);
  }
  return Value::of(out.finish());
}

Value Machine::eval_condition(const Expr& expr) {
  Value space;
  if (truth(look(*expr.parts[0], &space))) return eval(*expr.parts[1]);
  return expr.parts.size() > 2 ? eval(*expr.parts[2]) : Value::undefined();
}

Value Machine::eval_item(const Expr& expr) {
  Value left, right;
  const Value& value = look(*expr.parts[0], &left);
  const Expr& key = *expr.parts[1];
  if (value.is_undefined())
    work_.refuse("the chat template looks into a value that is undefined", value.name());
  if (key.kind == ExprKind::kSlice) {
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i)
      if (key.parts[i]) bounds[i] = eval(*key.parts[i]);
    work_.at(expr.line);
    return slice_of(value, {bounds[0], bounds[1], bounds[2]}, work_);
  }
  const Value& index = look(key, &right);
  work_.at(expr.line);
  Value found = item_at(value, index, work_);
  if (!found.is_missing()) return found;
  const char* name = key.kind == ExprKind::kConstant && index.is_text() ? index.bytes().data() : "";
  if (!index.is_text()) return Value::undefined();
  found = object_attribute(value, std::string(index.bytes()));
  return found.is_undefined() ? Value::undefined(name) : found;
}

Value Machine::attribute(const Value& value, const Expr& expr) {
  const auto bound = [&](const Builtin* method) { return make_method(value, *method, work_); };
  switch (value.kind()) {
    case Kind::kDict: {
      if (expr.of_dict != nullptr) return bound(expr.of_dict);
      const Value* found = value.dict().find(expr.name);
      return found == nullptr ? Value::undefined(expr.name.c_str()) : *found;
    }
    case Kind::kText:
      return expr.of_text != nullptr ? bound(expr.of_text) : Value::undefined(expr.name.c_str());
    case Kind::kList:
      return expr.of_sequence != nullptr ? bound(expr.of_sequence)
                                         : Value::undefined(expr.name.c_str());
    case Kind::kMissing:
    case Kind::kUndefined:
      work_.at(expr.line);
      work_.refuse("the chat template looks into a value that is undefined", value.name(), {},
                   "give the template this value, or use another template");
    default: {
      const Value found = object_attribute(value, expr.name);
      return found.is_undefined() ? Value::undefined(expr.name.c_str()) : found;
    }
  }
}

Value Machine::macro_attribute(const Macro& macro, const std::string& name) {
  if (name == "name") return make_text(macro.name, work_);
  if (name == "catch_kwargs") return Value::of(macro.takes_kwargs);
  if (name == "catch_varargs") return Value::of(macro.takes_varargs);
  if (name == "caller") return Value::of(macro.takes_caller);
  if (name != "arguments") return Value::undefined();
  std::vector<Value> names;
  for (const ExprPtr& parameter : macro.parameters)
    names.push_back(make_text(parameter->name, work_));
  return Value::tuple(std::move(names), work_);
}

/// getattr() only; undefined if there is no such attribute.
Value Machine::object_attribute(const Value& value, const std::string& name) {
  switch (value.kind()) {
    case Kind::kLoop:
      return loop_attribute(value, name);
    case Kind::kMacro:
      return macro_attribute(*value.object<MacroObject>().macro, name);
    default:
      return builtin_attribute(value, name, work_);
  }
}

}  // namespace lft::text::jinja
