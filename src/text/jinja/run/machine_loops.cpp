// The `for` statement, and the variable `loop` in its body.
#include "src/text/jinja/run/machine.h"
#include "src/text/jinja/value/compare.h"

namespace lft::text::jinja {

void LoopObject::release() {
  changed = previous = current = Value();
  ahead.clear();
}

bool LoopObject::advance() {
  Value next;
  if (!ahead.empty()) {
    next = std::move(ahead.front());
    ahead.pop_front();
  } else if (!machine->draw(this, &next)) {
    return false;
  }
  ++index0;
  previous = std::move(current);
  current = std::move(next);
  return true;
}

const Value& LoopObject::peek() {
  static const Value none;
  Value next;
  if (ahead.empty() && machine->draw(this, &next)) ahead.push_back(std::move(next));
  return ahead.empty() ? none : ahead.front();
}

int64_t LoopObject::length() {
  if (known_length >= 0) return known_length;
  if (!loop->test && iteration.left() >= 0) {
    known_length = index0 + 1 + static_cast<int64_t>(ahead.size()) + iteration.left();
  } else {
    for (Value next; machine->draw(this, &next);) {
      machine->work().take(sizeof(Value));
      ahead.push_back(next);
    }
    known_length = index0 + 1 + static_cast<int64_t>(ahead.size());
  }
  return known_length;
}

bool Machine::draw(LoopObject* loop, Value* item) {
  if (!loop->loop->test) return loop->iteration.next(item);
  Frame* const before = frame_;
  while (loop->iteration.next(item)) {
    frame_ = loop->frame;
    enter(loop->loop->test_scope);
    assign(*loop->loop->test_target, *item);
    const bool takes = truth(eval(*loop->loop->test));
    frame_ = before;
    if (takes) return true;
  }
  return false;
}

Machine::Flow Machine::exec_for(const For& loop) {
  Value iterable = eval(*loop.iterable);
  if (loop.is_recursive) {
    out_->append(run_recursive(loop, frame_, std::move(iterable), 0));
  } else {
    run_loop(loop, std::move(iterable), 0);
  }
  return Flow::kNext;
}

Text Machine::run_recursive(const For& loop, Frame* outer, Value iterable, int64_t depth0) {
  Call call(*this, loop.function, outer);
  Redirect redirect(*this);
  call.begin();
  run_loop(loop, std::move(iterable), depth0);
  return redirect.finish();
}

/// The `else` of jinja2's loops runs unless a body was completed: also if all bodies ended with
/// `continue` or `break`.
void Machine::run_loop(const For& loop, Value iterable, int64_t depth0) {
  bool completed = false;
  if (!loop.has_loop && !loop.test) {
    Iteration iteration(std::move(iterable), work_);
    for (Value item; iteration.next(&item);) {
      enter(loop.body_scope);
      assign(*loop.target, std::move(item));
      if (!run_body(loop, &completed)) break;
    }
  } else {
    work_.take(sizeof(LoopObject));
    const int depth = iterable.depth() + 1;
    const auto state = std::make_shared<LoopObject>(this, &loop, std::move(iterable), work_);
    state->frame = frame_;
    state->depth0 = depth0;
    state->depth = depth;
    while (state->advance()) {
      enter(loop.body_scope);
      if (loop.has_loop) frame_->slots[loop.loop.slot] = Value(Kind::kLoop, state);
      assign(*loop.target, state->current);
      if (!run_body(loop, &completed)) break;
    }
  }
  if (completed || loop.otherwise.empty()) return;
  enter(loop.else_scope);
  exec(loop.otherwise);
}

/// False after a `break`.
bool Machine::run_body(const For& loop, bool* completed) {
  const Flow flow = exec(loop.body);
  *completed |= flow == Flow::kNext;
  return flow != Flow::kBreak;
}

Value Machine::loop_attribute(const Value& value, const std::string& name) {
  auto& loop = value.changing<LoopObject>();
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(loop.peek().is_missing());
  if (name == "index0") return Value::of(loop.index0);
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "length") return Value::of(loop.length());
  if (name == "revindex") return Value::of(loop.length() - loop.index0);
  if (name == "revindex0") return Value::of(loop.length() - loop.index0 - 1);
  if (name == "depth0") return Value::of(loop.depth0);
  if (name == "depth") return Value::of(loop.depth0 + 1);
  if (name == "previtem")
    return loop.previous.is_missing() ? Value::undefined("previtem") : loop.previous;
  if (name == "nextitem")
    return loop.peek().is_missing() ? Value::undefined("nextitem") : loop.peek();
  if (name == "cycle" || name == "changed") work_.unsupported("loop method without a call", name);
  return Value::undefined();
}

Value Machine::call_loop(LoopObject* loop, Arguments* arguments) {
  if (!loop->loop->is_recursive)
    work_.refuse("the chat template calls a loop that is not recursive");
  if (arguments->values.size() != 1 || !arguments->named.empty())
    work_.refuse("the chat template calls a loop wrongly", {}, "one value");
  const Deeper deeper(*this);
  return Value::of(run_recursive(*loop->loop, loop->frame->outer, std::move(arguments->values[0]),
                                 loop->depth0 + 1));
}

Value Machine::call_loop_method(const Value& value, const std::string& name, Arguments* arguments) {
  auto& loop = value.changing<LoopObject>();
  if (!arguments->named.empty()) work_.refuse("the chat template calls a loop's method wrongly");
  if (name == "cycle") {
    if (arguments->values.empty()) work_.refuse("the chat template cycles through nothing");
    return arguments->values[static_cast<size_t>(loop.index0) % arguments->values.size()];
  }
  const Value given = Value::tuple(std::move(arguments->values), work_);
  if (!loop.changed.is_missing() && equals(loop.changed, given, work_)) return Value::of(false);
  if (loop.changed.is_missing()) work_.keep(std::const_pointer_cast<Object>(value.shared()));
  loop.changed = given;
  return Value::of(true);
}

}  // namespace lft::text::jinja
