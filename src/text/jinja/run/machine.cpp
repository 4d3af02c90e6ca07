#include "src/text/jinja/run/machine.h"

#include "src/text/jinja/library/builtin.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {

Machine::Machine(const Program& program, const Value& globals, Work& work)
    : program_(program), work_(work) {
  globals_.reserve(program.globals.size());
  for (const std::string& name : program.globals) {
    const Value* given = globals.is(Kind::kDict) ? globals.dict().find(name) : nullptr;
    const Builtin* function = given == nullptr ? find_function(name) : nullptr;
    globals_.push_back(given != nullptr      ? *given
                       : function != nullptr ? Value::of(function)
                                             : Value::missing());
  }
}

void Machine::run(TextBuilder* out) {
  out_ = out;
  Call root(*this, program_.root, nullptr);
  root.begin();
  exec(program_.body);
}

void Machine::Deeper::too_deep() {
  --machine_.depth_;
  machine_.work_.refuse("the chat template calls itself too deeply");
}

Value& Machine::slot(const Variable& variable) {
  Frame* frame = frame_;
  for (uint32_t hops = variable.hops; hops > 0; --hops) frame = frame->outer;
  return frame->slots[variable.slot];
}

Frame* Machine::acquire(const Function& function, Frame* outer) {
  work_.take(sizeof(Frame) + function.slots * sizeof(Value));
  Frame* frame = nullptr;
  if (free_frames_.empty()) {
    frame = &frames_.emplace_front();
  } else {
    frame = free_frames_.back();
    free_frames_.pop_back();
  }
  frame->outer = outer;
  frame->slots.assign(function.slots, Value());
  return frame;
}

/// A frame that inner functions may still use is kept until the end.
void Machine::give_back(const Function& function, Frame* frame) {
  if (function.is_captured) return;
  frame->slots.clear();
  free_frames_.push_back(frame);
}

void Machine::enter(const Scope& scope) {
  for (const Load& load : scope.loads) {
    Value& variable = frame_->slots[load.slot];
    switch (load.kind) {
      case Load::Kind::kGlobal:
        variable = globals_[load.global];
        break;
      case Load::Kind::kCopy:
        variable = slot(load.from);
        break;
      case Load::Kind::kUnset:
        variable = Value::missing();
        break;
    }
  }
}

Machine::Flow Machine::exec(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = exec(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Machine::Flow Machine::exec(const Stmt& stmt) {
  const Deeper deeper(*this);
  work_.step();
  work_.at(stmt.line);
  switch (stmt.kind) {
    case StmtKind::kOutput:
      exec_output(static_cast<const Output&>(stmt));
      return Flow::kNext;
    case StmtKind::kFor:
      return exec_for(static_cast<const For&>(stmt));
    case StmtKind::kIf:
      return exec_if(static_cast<const If&>(stmt));
    case StmtKind::kSet: {
      const auto& set = static_cast<const Set&>(stmt);
      check_targets(*set.target);
      assign(*set.target, eval(*set.value));
      return Flow::kNext;
    }
    case StmtKind::kSetBlock:
      return exec_set_block(static_cast<const SetBlock&>(stmt));
    case StmtKind::kMacro: {
      const auto& macro = static_cast<const Macro&>(stmt);
      slot(macro.target->variable) = make_macro(macro);
      return Flow::kNext;
    }
    case StmtKind::kCallBlock:
      exec_call_block(static_cast<const CallBlock&>(stmt));
      return Flow::kNext;
    case StmtKind::kFilterBlock:
      return exec_filter_block(static_cast<const FilterBlock&>(stmt));
    case StmtKind::kWith:
      return exec_with(static_cast<const With&>(stmt));
    case StmtKind::kGeneration:
      exec_generation(static_cast<const Generation&>(stmt));
      return Flow::kNext;
    case StmtKind::kBreak:
      return Flow::kBreak;
    default:
      return Flow::kContinue;
  }
}

void Machine::exec_output(const Output& output) {
  for (const ExprPtr& part : output.parts) {
    Value space;
    print(look(*part, &space), out_);
  }
}

Machine::Flow Machine::exec_if(const If& choice) {
  for (const If::Branch& branch : choice.branches) {
    Value space;
    if (truth(look(*branch.test, &space))) return exec(branch.body);
  }
  return exec(choice.otherwise);
}

Machine::Flow Machine::exec_with(const With& with) {
  enter(with.scope);
  for (size_t i = 0; i < with.targets.size(); ++i) assign(*with.targets[i], eval(*with.values[i]));
  return exec(with.body);
}

Machine::Flow Machine::exec_set_block(const SetBlock& set) {
  enter(set.scope);
  Text text;
  {
    Redirect redirect(*this);
    const Flow flow = exec(set.body);
    if (flow != Flow::kNext) return flow;
    text = redirect.finish();
  }
  check_targets(*set.target);
  assign(*set.target, set.filter ? eval_filter(*set.filter, &text) : Value::of(text));
  return Flow::kNext;
}

Machine::Flow Machine::exec_filter_block(const FilterBlock& block) {
  enter(block.scope);
  Text text;
  {
    Redirect redirect(*this);
    const Flow flow = exec(block.body);
    if (flow != Flow::kNext) return flow;
    text = redirect.finish();
  }
  print(eval_filter(*block.filter, &text), out_);
  return Flow::kNext;
}

void Machine::exec_call_block(const CallBlock& block) {
  const Value caller = make_macro(*block.caller);
  print(eval_call(*block.call, &caller), out_);
}

void Machine::exec_generation(const Generation& generation) {
  if (redirects_ > 0)
    work_.unsupported("{% generation %} within a macro, a call, a set or", "filter");
  const size_t begin = out_->size();
  Call call(*this, generation.function, frame_);
  call.begin();
  ++redirects_;  // the output of the block has no position in another one
  exec(generation.body);
  --redirects_;
  generation_.push_back({begin, out_->size()});
}

void Machine::check_targets(const Expr& target) {
  for (const ExprPtr& part : target.parts) {
    if (target.kind == ExprKind::kTuple) {
      check_targets(*part);
    } else if (!slot(part->variable).is(Kind::kNamespace)) {
      work_.refuse("the chat template sets an attribute of what is no namespace", part->name);
    }
  }
}

void Machine::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    slot(target.variable) = std::move(value);
    return;
  }
  if (target.kind == ExprKind::kAttributeTarget) {
    auto& attributes = slot(target.parts[0]->variable).changing<NamespaceObject>().attributes;
    const Value key = make_text(target.name, work_);
    return attributes.set(key, std::move(value), work_);
  }
  const std::vector<Value> items = list_of(value, work_);
  if (items.size() != target.parts.size()) {
    work_.refuse("the chat template takes a value apart into too few or too many names",
                 std::to_string(items.size()) + " values",
                 std::to_string(target.parts.size()) + " values");
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

}  // namespace lft::text::jinja
