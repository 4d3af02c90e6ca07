#include "src/text/jinja/run/bind.h"

#include "src/base/errors.h"
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/run/symbols.h"
#include "src/text/jinja/run/walk.h"

namespace lft::text::jinja {
namespace {

/// Adds the names of a scope to its symbols. Inner scopes have their own symbols.
class Collector {
 public:
  explicit Collector(Symbols* symbols) : symbols_(symbols) {}

  void expr(const Expr* expr) {
    walk_expr(expr, [&](const std::string& name, NameUse, uint32_t) { symbols_->load(name); });
  }

  void target(const Expr& target, NameUse use) {
    walk_target(target, use, [&](const std::string& name, NameUse found, uint32_t) {
      if (found == NameUse::kLoad) {
        symbols_->load(name);
      } else if (found == NameUse::kStore) {
        symbols_->store(name);
      } else {
        symbols_->declare(name);
      }
    });
  }

  void body(const Body& body) {
    for (const auto& each : body) stmt(*each);
  }

 private:
  void stmt(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kOutput:
        for (const ExprPtr& part : static_cast<const Output&>(stmt).parts) expr(part.get());
        return;
      case StmtKind::kFor:
        return expr(static_cast<const For&>(stmt).iterable.get());
      case StmtKind::kIf:
        return branches(static_cast<const If&>(stmt));
      case StmtKind::kSet:
        expr(static_cast<const Set&>(stmt).value.get());
        return target(*static_cast<const Set&>(stmt).target, NameUse::kStore);
      case StmtKind::kSetBlock:
        return target(*static_cast<const SetBlock&>(stmt).target, NameUse::kStore);
      case StmtKind::kMacro:
        return symbols_->store(static_cast<const Macro&>(stmt).name);
      case StmtKind::kCallBlock:
        return expr(static_cast<const CallBlock&>(stmt).call.get());
      case StmtKind::kFilterBlock:
        return expr(static_cast<const FilterBlock&>(stmt).filter.get());
      case StmtKind::kWith:
        for (const ExprPtr& value : static_cast<const With&>(stmt).values) expr(value.get());
        return;
      case StmtKind::kGeneration:
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        return;
    }
  }

  /// `if` is one condition; every `elif` is a condition in the second branch of the previous one.
  void branches(const If& choice) {
    expr(choice.branches[0].test.get());
    std::vector<Symbols> copies;
    copies.push_back(branch([&] { body(choice.branches[0].body); }));
    copies.push_back(branch([&] {
      for (size_t i = 1; i < choice.branches.size(); ++i) {
        expr(choice.branches[i].test.get());
        std::vector<Symbols> inner;
        inner.push_back(branch([&] { body(choice.branches[i].body); }));
        symbols_->merge(inner);
      }
    }));
    copies.push_back(branch([&] { body(choice.otherwise); }));
    symbols_->merge(copies);
  }

  template <class Visit>
  Symbols branch(const Visit& visit) {
    Symbols* const own = symbols_;
    Symbols copy = *own;
    symbols_ = &copy;
    visit();
    symbols_ = own;
    return copy;
  }

  Symbols* symbols_;
};

class Binder {
 public:
  explicit Binder(Work& work) : work_(work) {}

  void program(Program* program) {
    FunctionScope function{.function = &program->root, .outer = nullptr};
    Symbols symbols(nullptr, &function, program);
    Collector(&symbols).body(program->body);
    body(program->body, symbols, false);
    program->root.scope = symbols.scope();
  }

 private:
  /// In a condition (`soft`) an unknown filter or test is an error only when it is used.
  void expr(Expr* expr, const Symbols& symbols, bool soft) {
    if (expr == nullptr) return;
    soft = soft || expr->kind == ExprKind::kCondition;
    for (const ExprPtr& part : expr->parts) this->expr(part.get(), symbols, soft);
    if (expr->arguments) {
      for (const ExprPtr& each : expr->arguments->positional) this->expr(each.get(), symbols, soft);
      for (const auto& named : expr->arguments->named)
        this->expr(named.second.get(), symbols, soft);
      this->expr(expr->arguments->star.get(), symbols, soft);
      this->expr(expr->arguments->double_star.get(), symbols, soft);
    }
    switch (expr->kind) {
      case ExprKind::kName:
        return name(expr, symbols);
      case ExprKind::kAttribute:
        expr->of_text = find_method(Kind::kText, expr->name);
        expr->of_sequence = find_method(Kind::kList, expr->name);
        expr->of_dict = find_method(Kind::kDict, expr->name);
        return;
      case ExprKind::kFilter:
      case ExprKind::kTest:
        return function(expr, soft);
      default:
        return;
    }
  }

  void name(Expr* expr, const Symbols& symbols) {
    if (expr->name == "self") {
      work_.at(expr->line);
      work_.unsupported("name", "self");
    }
    expr->variable = symbols.find(expr->name, symbols.function());
  }

  void function(Expr* expr, bool soft) {
    const bool is_filter = expr->kind == ExprKind::kFilter;
    expr->builtin = is_filter ? find_filter(expr->name) : find_test(expr->name);
    work_.at(expr->line);
    if (expr->builtin == nullptr && !soft) {
      work_.refuse(std::string("the chat template uses a ") + (is_filter ? "filter" : "test") +
                       " that there is not",
                   quote_text(expr->name, 40));
    }
    if (expr->builtin != nullptr && expr->builtin->run == nullptr && !soft)
      work_.unsupported(is_filter ? "filter" : "test", expr->name);
  }

  void target(Expr* target, const Symbols& symbols) {
    if (target->kind == ExprKind::kName) {
      target->variable = symbols.find(target->name, symbols.function());
      return;
    }
    for (const ExprPtr& part : target->parts) this->target(part.get(), symbols);
  }

  void body(const Body& body, Symbols& symbols, bool soft) {
    for (const auto& each : body) stmt(each.get(), symbols, soft);
  }

  void stmt(Stmt* stmt, Symbols& symbols, bool soft) {
    switch (stmt->kind) {
      case StmtKind::kOutput:
        for (const ExprPtr& part : static_cast<Output*>(stmt)->parts)
          expr(part.get(), symbols, soft);
        return;
      case StmtKind::kFor:
        return loop(static_cast<For*>(stmt), symbols, soft);
      case StmtKind::kIf:
        for (const If::Branch& branch : static_cast<If*>(stmt)->branches) {
          expr(branch.test.get(), symbols, true);
          body(branch.body, symbols, true);
        }
        return body(static_cast<If*>(stmt)->otherwise, symbols, true);
      case StmtKind::kSet:
        expr(static_cast<Set*>(stmt)->value.get(), symbols, soft);
        return target(static_cast<Set*>(stmt)->target.get(), symbols);
      case StmtKind::kSetBlock:
        return set_block(static_cast<SetBlock*>(stmt), symbols);
      case StmtKind::kMacro:
        target(static_cast<Macro*>(stmt)->target.get(), symbols);
        return macro(static_cast<Macro*>(stmt), symbols);
      case StmtKind::kCallBlock:
        macro(static_cast<CallBlock*>(stmt)->caller.get(), symbols);
        return expr(static_cast<CallBlock*>(stmt)->call.get(), symbols, soft);
      case StmtKind::kFilterBlock:
        return filter_block(static_cast<FilterBlock*>(stmt), symbols);
      case StmtKind::kWith:
        return with(static_cast<With*>(stmt), symbols, soft);
      case StmtKind::kGeneration:
        return generation(static_cast<Generation*>(stmt), symbols);
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        return;
    }
  }

  void set_block(SetBlock* set, Symbols& symbols) {
    Symbols inner(&symbols, symbols.function(), symbols.program());
    Collector collector(&inner);
    collector.body(set->body);
    collector.expr(set->filter.get());
    body(set->body, inner, false);
    expr(set->filter.get(), inner, false);
    target(set->target.get(), symbols);
    set->scope = inner.scope();
  }

  void filter_block(FilterBlock* block, Symbols& symbols) {
    Symbols inner(&symbols, symbols.function(), symbols.program());
    Collector collector(&inner);
    collector.body(block->body);
    collector.expr(block->filter.get());
    body(block->body, inner, false);
    expr(block->filter.get(), inner, false);
    block->scope = inner.scope();
  }

  void with(With* with, Symbols& symbols, bool soft) {
    Symbols inner(&symbols, symbols.function(), symbols.program());
    Collector collector(&inner);
    for (const ExprPtr& each : with->targets) collector.target(*each, NameUse::kParameter);
    collector.body(with->body);
    for (const ExprPtr& value : with->values) expr(value.get(), symbols, soft);
    for (const ExprPtr& each : with->targets) target(each.get(), inner);
    body(with->body, inner, false);
    with->scope = inner.scope();
  }

  void generation(Generation* generation, Symbols& symbols) {
    symbols.function()->function->is_captured = true;
    FunctionScope function{.function = &generation->function, .outer = symbols.function()};
    Symbols inner(&symbols, &function, symbols.program());
    Collector(&inner).body(generation->body);
    body(generation->body, inner, false);
    generation->function.scope = inner.scope();
  }

  void macro(Macro* macro, Symbols& symbols) {
    symbols.function()->function->is_captured = true;
    FunctionScope function{.function = &macro->function, .outer = symbols.function()};
    Symbols inner(&symbols, &function, symbols.program());
    Collector collector(&inner);
    bool names_caller = false;
    for (const ExprPtr& parameter : macro->parameters) {
      inner.declare(parameter->name);
      names_caller |= parameter->name == "caller";
    }
    const std::set<std::string> special = undeclared(macro->body, {"caller", "kwargs", "varargs"});
    const auto is_parameter = [&](const std::string& name) {
      for (const ExprPtr& parameter : macro->parameters)
        if (parameter->name == name) return true;
      return false;
    };
    if (special.contains("caller")) {
      macro->takes_caller = true;
      if (names_caller) check_caller(*macro);
      macro->caller = inner.declare("caller");
    }
    macro->takes_kwargs = special.contains("kwargs") && !is_parameter("kwargs");
    if (macro->takes_kwargs) macro->kwargs = inner.declare("kwargs");
    macro->takes_varargs = special.contains("varargs") && !is_parameter("varargs");
    if (macro->takes_varargs) macro->varargs = inner.declare("varargs");
    for (const ExprPtr& each : macro->defaults) collector.expr(each.get());
    collector.body(macro->body);
    for (const ExprPtr& parameter : macro->parameters) target(parameter.get(), inner);
    for (const ExprPtr& each : macro->defaults) expr(each.get(), inner, false);
    body(macro->body, inner, false);
    macro->function.scope = inner.scope();
  }

  void check_caller(const Macro& macro) {
    const size_t plain = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < plain; ++i) {
      if (macro.parameters[i]->name != "caller") continue;
      work_.at(macro.line);
      work_.refuse(
          "the chat template is not valid Jinja: a macro's parameter \"caller\" has no "
          "default");
    }
  }

  void loop(For* loop, Symbols& symbols, bool soft) {
    check_loop_names(*loop);
    expr(loop->iterable.get(), symbols, soft);
    FunctionScope own{.function = &loop->function, .outer = symbols.function()};
    FunctionScope* const function = loop->is_recursive ? &own : symbols.function();
    if (loop->is_recursive) symbols.function()->function->is_captured = true;
    Symbols inner(&symbols, function, symbols.program());
    loop->has_loop = loop->is_recursive || undeclared(loop->body, {"loop"}).contains("loop");
    if (loop->has_loop) loop->loop.slot = inner.declare("loop");
    Collector collector(&inner);
    collector.target(*loop->target, NameUse::kParameter);
    collector.body(loop->body);
    target(loop->target.get(), inner);
    body(loop->body, inner, false);
    loop->body_scope = inner.scope();
    if (loop->test) loop_test(loop, symbols, function);
    Symbols otherwise(&symbols, function, symbols.program());
    Collector(&otherwise).body(loop->otherwise);
    body(loop->otherwise, otherwise, false);
    loop->else_scope = otherwise.scope();
  }

  void loop_test(For* loop, Symbols& symbols, FunctionScope* function) {
    Symbols inner(&symbols, function, symbols.program());
    Collector collector(&inner);
    collector.target(*loop->target, NameUse::kParameter);
    collector.expr(loop->test.get());
    loop->test_target = copy_target(*loop->target);
    target(loop->test_target.get(), inner);
    expr(loop->test.get(), inner, false);
    loop->test_scope = inner.scope();
  }

  static ExprPtr copy_target(const Expr& target) {
    auto copy = std::make_unique<Expr>(target.kind, target.line);
    copy->name = target.name;
    for (const ExprPtr& part : target.parts) copy->parts.push_back(copy_target(*part));
    return copy;
  }

  void check_loop_names(const For& loop) {
    walk_for(loop, [&](const std::string& name, NameUse use, uint32_t line) {
      if (use != NameUse::kStore || name != "loop") return;
      work_.at(line);
      work_.refuse("the chat template is not valid Jinja: it assigns to `loop` in a loop");
    });
  }

  Work& work_;
};

}  // namespace

void bind_program(Program* program, Work& work) { Binder(work).program(program); }

}  // namespace lft::text::jinja
