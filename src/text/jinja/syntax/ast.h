// The syntax tree of a template: expressions, statements, and the results of binding
// (src/text/jinja/run).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/text/jinja/value/arithmetic.h"
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// A variable of the function `hops` levels further out.
struct Variable {
  uint32_t hops = 0, slot = 0;
};

/// The initial value of a scope's variable.
struct Load {
  enum class Kind : uint8_t { kGlobal, kCopy, kUnset };
  Kind kind = Kind::kUnset;
  uint32_t slot = 0;
  uint32_t global = 0;  // index in Program::globals
  Variable from;        // for kCopy
};
struct Scope {
  std::vector<Load> loads;
};
/// A unit with its own variables: the template, a macro, the body of a call block or of a recursive
/// loop.
struct Function {
  uint32_t slots = 0;
  bool is_captured = false;  // inner functions may outlive it
  Scope scope;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kAttributeTarget,  // assignment to name.attribute
  kList,
  kTuple,
  kDict,  // parts: key, value, key, value ...
  kNegate,
  kPosit,
  kNot,
  kBinary,
  kConcat,
  kAnd,
  kOr,
  kCompare,    // parts[0] tests[0] parts[1] tests[1] ...
  kCondition,  // parts: condition, then, otherwise (optional)
  kAttribute,
  kItem,
  kSlice,  // parts: start, stop, step, each of which may be null
  kCall,
  kFilter,  // parts[0] may be null: the output of a block
  kTest,
};
enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

struct Expr {
  Expr(ExprKind kind, uint32_t line) : kind(kind), line(line) {}
  ExprKind kind;
  Operator sign = Operator::kAdd;  // for kBinary
  uint16_t height = 1;
  uint32_t line;
  Value constant;
  std::string name;  // name of a variable, attribute, filter or test
  std::vector<ExprPtr> parts;
  std::vector<Comparison> comparisons;
  std::unique_ptr<CallArguments> arguments;
  // Set by binding:
  Variable variable;
  const Builtin* builtin = nullptr;      // for kFilter and kTest; null if unknown
  const Builtin* of_text = nullptr;      // methods with kAttribute's name
  const Builtin* of_sequence = nullptr;  // those of a list
  const Builtin* of_dict = nullptr;
};

enum class StmtKind : uint8_t {
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};
struct Stmt {
  Stmt(StmtKind kind, uint32_t line) : kind(kind), line(line) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  uint32_t line;
};
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Output : Stmt {
  using Stmt::Stmt;
  std::vector<ExprPtr> parts;
};
struct For : Stmt {
  using Stmt::Stmt;
  ExprPtr target, iterable, test;
  ExprPtr test_target;  // the same names as `target`, as seen by the test
  bool is_recursive = false;
  Body body, otherwise;
  Scope body_scope, test_scope, else_scope;
  bool has_loop = false;  // the body uses `loop`
  Variable loop;
  Function function;  // for a recursive loop
};
struct If : Stmt {
  using Stmt::Stmt;
  struct Branch {
    ExprPtr test;
    Body body;
  };
  std::vector<Branch> branches;
  Body otherwise;
};
struct Set : Stmt {
  using Stmt::Stmt;
  ExprPtr target, value;
};
struct SetBlock : Stmt {
  using Stmt::Stmt;
  ExprPtr target, filter;  // filter: null without one
  Body body;
  Scope scope;
};
/// A macro, or the body of a call block, which is the macro `caller`.
struct Macro : Stmt {
  using Stmt::Stmt;
  std::string name;
  ExprPtr target;  // variable of the macro
  std::vector<ExprPtr> parameters, defaults;
  Body body;
  Function function;
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  uint32_t caller = 0, kwargs = 0, varargs = 0;  // slots
};
struct CallBlock : Stmt {
  using Stmt::Stmt;
  ExprPtr call;
  std::unique_ptr<Macro> caller;
};
struct FilterBlock : Stmt {
  using Stmt::Stmt;
  ExprPtr filter;
  Body body;
  Scope scope;
};
struct With : Stmt {
  using Stmt::Stmt;
  std::vector<ExprPtr> targets, values;
  Body body;
  Scope scope;
};
/// Marks an assistant's text.
struct Generation : Stmt {
  using Stmt::Stmt;
  Body body;
  Function function;
};

struct Program {
  Body body;
  Function root;
  std::vector<std::string> globals;  // names that no part of the template sets
  bool marks_generation = false;
};

}  // namespace lft::text::jinja
