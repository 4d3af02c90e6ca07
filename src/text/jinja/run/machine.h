// Renders a bound template: evaluates its tree, with the variables in frames and the output in a
// builder. One object renders once.
#pragma once
#include <deque>
#include <forward_list>
#include <vector>

#include "src/text/jinja/library/builtin.h"
#include "src/text/jinja/syntax/ast.h"
#include "src/text/jinja/value/iterate.h"

namespace lft::text::jinja {

/// The variables of one function call.
struct Frame {
  Frame* outer = nullptr;
  std::vector<Value> slots;
};

struct MacroObject : Object {
  const Macro* macro = nullptr;
  Frame* frame = nullptr;  // the frame of its definition
};

class Machine;

/// The elements of a `for` that pass its condition, and the state of `loop`.
struct LoopObject : Object {
  LoopObject(Machine* machine, const For* loop, Value iterable, Work& work)
      : machine(machine), loop(loop), iteration(std::move(iterable), work) {}
  void release() override;
  /// Advances; false at the end.
  bool advance();
  /// The element after the current one; missing at the end.
  const Value& peek();
  int64_t length();

  Machine* machine;
  const For* loop;
  Frame* frame = nullptr;  // frame of the condition
  Iteration iteration;
  std::deque<Value> ahead;  // drawn, but after the current element
  int64_t index0 = -1, depth0 = 0, known_length = -1;
  Value previous, current;
  Value changed;  // last arguments of loop.changed()
};

struct GenerationSpan {
  size_t begin, end;
};

class Machine {
 public:
  Machine(const Program& program, const Value& globals, Work& work);
  /// Writes the whole output to `out`.
  void run(TextBuilder* out);
  const std::vector<GenerationSpan>& generation() const { return generation_; }
  Work& work() { return work_; }

  /// Draws the next element that passes the loop's condition.
  bool draw(LoopObject* loop, Value* item);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  /// Counts the nesting depth.
  class Deeper;
  /// Redirects the output during its lifetime.
  class Redirect;
  /// Sets a function's variables while it runs.
  class Call;

  // machine.cpp: statements
  Flow exec(const Body& body);
  Flow exec(const Stmt& stmt);
  void exec_output(const Output& output);
  Flow exec_if(const If& choice);
  Flow exec_with(const With& with);
  Flow exec_set_block(const SetBlock& set);
  Flow exec_filter_block(const FilterBlock& block);
  void exec_call_block(const CallBlock& block);
  void exec_generation(const Generation& generation);
  void enter(const Scope& scope);
  void assign(const Expr& target, Value value);
  void check_targets(const Expr& target);
  Value& slot(const Variable& variable);
  Frame* acquire(const Function& function, Frame* outer);
  void give_back(const Function& function, Frame* frame);

  // machine_loops.cpp
  Flow exec_for(const For& loop);
  void run_loop(const For& loop, Value iterable, int64_t depth0);
  Text run_recursive(const For& loop, Frame* outer, Value iterable, int64_t depth0);
  bool run_body(const For& loop, bool* completed);
  Value loop_attribute(const Value& loop, const std::string& name);
  Value call_loop(LoopObject* loop, Arguments* arguments);
  Value call_loop_method(const Value& loop, const std::string& name, Arguments* arguments);

  // machine_expressions.cpp
  Value eval(const Expr& expr);
  /// Evaluates without copying a constant or a variable; other values are put in `*space`.
  const Value& look(const Expr& expr, Value* space);
  Value eval_name(const Expr& expr);
  Value eval_sequence(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_compare(const Expr& expr);
  bool compare(Comparison comparison, const Value& a, const Value& b);
  Value eval_concat(const Expr& expr);
  Value eval_condition(const Expr& expr);
  Value eval_item(const Expr& expr);
  Value attribute(const Value& value, const Expr& expr);
  Value macro_attribute(const Macro& macro, const std::string& name);
  Value object_attribute(const Value& value, const std::string& name);

  // machine_calls.cpp
  Value eval_call(const Expr& expr, const Value* caller = nullptr);
  Value eval_filter(const Expr& expr, const Text* block = nullptr);
  Value eval_test(const Expr& expr);
  void eval_arguments(const CallArguments* given, Arguments* out);
  Value call(const Value& callee, Arguments* arguments);
  Value call_method(const Value& receiver, const Builtin& method, const Expr& expr);
  Value call_macro(const MacroObject& macro, Arguments* arguments);
  void fill_parameters(const Macro& macro, Arguments* arguments, Frame* frame);
  void fill_special(const Macro& macro, Arguments* arguments, size_t used, bool has_caller,
                    Frame* frame);
  Value make_macro(const Macro& macro);

  const Program& program_;
  Work& work_;
  std::vector<Value> globals_;  // values of Program::globals
  std::forward_list<Frame> frames_;
  std::vector<Frame*> free_frames_;
  Frame* frame_ = nullptr;
  TextBuilder* out_ = nullptr;
  int depth_ = 0;
  int redirects_ = 0;
  std::vector<GenerationSpan> generation_;
};

class Machine::Deeper {
 public:
  explicit Deeper(Machine& machine) : machine_(machine) {
    if (++machine.depth_ > machine.work_.limits().depth) too_deep();
  }
  ~Deeper() { --machine_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  [[noreturn]] void too_deep();
  Machine& machine_;
};

class Machine::Redirect {
 public:
  explicit Redirect(Machine& machine)
      : machine_(machine), text_(machine.work_), before_(machine.out_) {
    machine.out_ = &text_;
    ++machine.redirects_;
  }
  ~Redirect() {
    machine_.out_ = before_;
    --machine_.redirects_;
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;
  Text finish() { return text_.finish(); }

 private:
  Machine& machine_;
  TextBuilder text_;
  TextBuilder* before_;
};

class Machine::Call {
 public:
  Call(Machine& machine, const Function& function, Frame* outer)
      : machine_(machine), function_(function), before_(machine.frame_) {
    frame = machine.acquire(function, outer);
  }
  ~Call() {
    machine_.frame_ = before_;
    machine_.give_back(function_, frame);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  void begin() {
    machine_.frame_ = frame;
    machine_.enter(function_.scope);
  }

  Frame* frame;

 private:
  Machine& machine_;
  const Function& function_;
  Frame* before_;
};

}  // namespace lft::text::jinja
