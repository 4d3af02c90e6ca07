// Calls of functions, methods, macros, filters and tests.
#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/run/machine.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {

void Machine::eval_arguments(const CallArguments* given, Arguments* out) {
  if (given == nullptr) return;
  out->values.reserve(out->values.size() + given->positional.size() + 1);
  for (const ExprPtr& each : given->positional) out->values.push_back(eval(*each));
  if (given->star) {
    const std::vector<Value> more = list_of(eval(*given->star), work_);
    out->values.insert(out->values.end(), more.begin(), more.end());
  }
  for (const auto& [name, each] : given->named) out->named.emplace_back(name, eval(*each));
  if (!given->double_star) return;
  const Value more = eval(*given->double_star);
  if (!more.is(Kind::kDict))
    work_.refuse("the chat template gives a call ** of what is no dict", type_name(more));
  for (const auto& [key, value] : more.dict().entries) {
    if (!key.is_text()) work_.refuse("the chat template names an argument by what is no text");
    const std::string name(key.bytes());
    for (const auto& known : out->named)
      if (known.first == name) work_.refuse("an argument is given twice", quote_text(name, 40));
    out->named.emplace_back(name, value);
  }
}

Value Machine::eval_call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.parts[0];
  Arguments arguments;
  if (callee.kind == ExprKind::kAttribute) {
    Value space;
    const Value& receiver = look(*callee.parts[0], &space);
    const Builtin* method = receiver.is_text()         ? callee.of_text
                            : receiver.is(Kind::kDict) ? callee.of_dict
                            : receiver.is(Kind::kList) ? callee.of_sequence
                                                       : nullptr;
    if (method != nullptr && caller == nullptr) return call_method(receiver, *method, expr);
    if (receiver.is(Kind::kLoop) && (callee.name == "cycle" || callee.name == "changed")) {
      const Value loop = receiver;
      eval_arguments(expr.arguments.get(), &arguments);
      return call_loop_method(loop, callee.name, &arguments);
    }
    const Value function = attribute(receiver, callee);
    eval_arguments(expr.arguments.get(), &arguments);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    work_.at(expr.line);
    return call(function, &arguments);
  }
  const Value function = eval(callee);
  eval_arguments(expr.arguments.get(), &arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  work_.at(expr.line);
  return call(function, &arguments);
}

Value Machine::call_method(const Value& receiver, const Builtin& method, const Expr& expr) {
  if (receiver.is_marked()) work_.unsupported("method of a text marked by", "safe");
  Arguments arguments;
  arguments.values.reserve(method.parameters.size() + 1);
  arguments.values.push_back(receiver);
  eval_arguments(expr.arguments.get(), &arguments);
  work_.at(expr.line);
  return call_builtin(method, &arguments, work_);
}

Value Machine::call(const Value& callee, Arguments* arguments) {
  switch (callee.kind()) {
    case Kind::kFunction:
      return call_builtin(*callee.function(), arguments, work_);
    case Kind::kMethod: {
      const auto& method = callee.object<MethodObject>();
      arguments->values.insert(arguments->values.begin(), method.receiver);
      return call_builtin(*method.builtin, arguments, work_);
    }
    case Kind::kMacro:
      return call_macro(callee.object<MacroObject>(), arguments);
    case Kind::kLoop:
      return call_loop(&callee.changing<LoopObject>(), arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.changing<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::of(Text());
    }
    case Kind::kUndefined:
      work_.refuse("the chat template calls what is undefined", callee.name(), {},
                   "use another template, or one that does not call it");
    default:
      work_.refuse("the chat template calls what is no function",
                   std::string("a ") + type_name(callee));
  }
}

Value Machine::make_macro(const Macro& macro) {
  work_.take(sizeof(MacroObject));
  auto object = std::make_shared<MacroObject>();
  object->macro = &macro;
  object->frame = frame_;
  return Value(Kind::kMacro, std::move(object));
}

Value Machine::call_macro(const MacroObject& object, Arguments* arguments) {
  const Macro& macro = *object.macro;
  const Deeper deeper(*this);
  Call call(*this, macro.function, object.frame);
  fill_parameters(macro, arguments, call.frame);
  call.begin();
  const size_t plain = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    Value& parameter = call.frame->slots[macro.parameters[i]->variable.slot];
    if (!parameter.is_missing()) continue;
    Value value = i < plain ? Value::undefined(macro.parameters[i]->name.c_str())
                            : eval(*macro.defaults[i - plain]);
    call.frame->slots[macro.parameters[i]->variable.slot] = std::move(value);
  }
  Redirect redirect(*this);
  exec(macro.body);
  return Value::of(redirect.finish());
}

/// Omitted arguments remain missing.
void Machine::fill_parameters(const Macro& macro, Arguments* arguments, Frame* frame) {
  const size_t count = macro.parameters.size();
  const size_t by_place = std::min(count, arguments->values.size());
  bool has_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const Expr& parameter = *macro.parameters[i];
    has_caller |= parameter.name == "caller";
    if (i < by_place) {
      frame->slots[parameter.variable.slot] = arguments->values[i];
      continue;
    }
    const auto named = std::find_if(arguments->named.begin(), arguments->named.end(),
                                    [&](const auto& each) { return each.first == parameter.name; });
    if (named == arguments->named.end()) continue;
    frame->slots[parameter.variable.slot] = std::move(named->second);
    arguments->named.erase(named);
  }
  fill_special(macro, arguments, by_place, has_caller, frame);
}

void Machine::fill_special(const Macro& macro, Arguments* arguments, size_t used, bool has_caller,
                           Frame* frame) {
  auto& named = arguments->named;
  if (macro.takes_caller && !has_caller) {
    const auto given = std::find_if(named.begin(), named.end(),
                                    [](const auto& each) { return each.first == "caller"; });
    Value& caller = frame->slots[macro.caller];
    caller = Value::undefined("caller");
    if (given != named.end()) {
      if (!given->second.is(Kind::kNone)) caller = given->second;
      named.erase(given);
    }
  }
  if (macro.takes_kwargs) {
    work_.take(sizeof(DictObject));
    auto dict = std::make_shared<DictObject>();
    for (const auto& [name, value] : named) dict->set(make_text(name, work_), value, work_);
    frame->slots[macro.kwargs] = make_dict(std::move(dict));
  } else if (!named.empty()) {
    work_.refuse("the chat template gives the macro " + quote_text(macro.name, 40) +
                     " an argument that it does not have",
                 quote_text(named[0].first, 40));
  }
  const auto rest = arguments->values.begin() + static_cast<std::ptrdiff_t>(used);
  if (macro.takes_varargs) {
    frame->slots[macro.varargs] = Value::tuple({rest, arguments->values.end()}, work_);
  } else if (rest != arguments->values.end()) {
    work_.refuse(
        "the chat template gives the macro " + quote_text(macro.name, 40) + " too many arguments",
        std::to_string(arguments->values.size()),
        "at most " + std::to_string(macro.parameters.size()));
  }
}

Value Machine::eval_filter(const Expr& expr, const Text* block) {
  const Deeper deeper(*this);
  Arguments arguments;
  arguments.values.reserve(4);
  const Expr* inner = expr.parts[0].get();
  if (inner == nullptr) {
    arguments.values.push_back(Value::of(*block));
  } else if (inner->kind == ExprKind::kFilter) {
    arguments.values.push_back(eval_filter(*inner, block));
  } else {
    arguments.values.push_back(eval(*inner));
  }
  work_.at(expr.line);
  if (expr.builtin == nullptr)
    work_.refuse("the chat template uses a filter that there is not", quote_text(expr.name, 40));
  eval_arguments(expr.arguments.get(), &arguments);
  work_.at(expr.line);
  return call_builtin(*expr.builtin, &arguments, work_);
}

Value Machine::eval_test(const Expr& expr) {
  Arguments arguments;
  arguments.values.reserve(2);
  arguments.values.push_back(eval(*expr.parts[0]));
  work_.at(expr.line);
  if (expr.builtin == nullptr)
    work_.refuse("the chat template uses a test that there is not", quote_text(expr.name, 40));
  eval_arguments(expr.arguments.get(), &arguments);
  work_.at(expr.line);
  return call_builtin(*expr.builtin, &arguments, work_);
}

}  // namespace lft::text::jinja
