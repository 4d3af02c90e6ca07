#include "src/train/explain/op_watch.h"

#include <ATen/core/ivalue.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "src/train/explain/pass_walk.h"

namespace lft::train {
namespace {

constexpr size_t kMostSources = 64;  // limit of recorded sources: only the first counts

bool is_among(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

/// Whether the op returns uninitialised memory.
bool leaves_uninitialised(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_empty") ||
         op.starts_with("aten::_empty") || op.starts_with("aten::resize") || op == "aten::set_";
}

/// Whether the first argument is overwritten regardless of its values.
bool overwrites(std::string_view op) {
  return is_among(op, {"aten::copy_", "aten::fill_", "aten::zero_"});
}

bool writes_in_place(std::string_view op) { return op.ends_with('_') && !op.ends_with("__"); }

/// Whether values are only moved, apart from rounding.
bool moves_values(std::string_view op) {
  return is_among(op, {"aten::to", "aten::_to_copy", "aten::copy_", "aten::clone",
                       "aten::contiguous", "aten::reshape", "aten::flatten", "aten::cat",
                       "aten::index_select", "aten::select", "aten::masked_select"});
}

}  // namespace

/// State of an op while it runs.
struct OpWatch::OpCall : at::ObserverContext {
  std::vector<OpInput> inputs;
  std::vector<double> scalars;
  size_t sources_before = 0;
};

OpWatch::OpWatch(const std::vector<NamedTensor>& known) {
  for (const NamedTensor& each : known) {
    names_.emplace(memory_of(each.tensor), each.name);
    if (!is_finite(each.tensor)) bad_.push_back(each);
  }
  current_ = this;
  const auto start = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    return current_ == nullptr || !current_->watching_ ? nullptr : current_->op_starts(fn);
  };
  const auto end = [](const at::RecordFunction& fn, at::ObserverContext* call) {
    if (call != nullptr && current_ != nullptr && current_->watching_)
      current_->op_ends(fn, static_cast<OpCall&>(*call));
  };
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

OpWatch::~OpWatch() {
  at::removeCallback(handle_);
  current_ = nullptr;
}

const BadValue* OpWatch::first(size_t since) const {
  return since < sources_.size() ? &sources_[since] : nullptr;
}

void OpWatch::forget(size_t since) { sources_.resize(std::min(since, sources_.size())); }

const NamedTensor* OpWatch::find_bad(const at::Tensor& tensor) const {
  const auto found = std::ranges::find_if(
      bad_, [&](const NamedTensor& each) { return memory_of(each.tensor) == memory_of(tensor); });
  return found == bad_.end() ? nullptr : &*found;
}

std::unique_ptr<at::ObserverContext> OpWatch::op_starts(const at::RecordFunction& fn) const {
  const LookAside aside;
  auto call = std::make_unique<OpCall>();
  call->sources_before = sources_.size();
  const std::string_view op = fn.name();
  for (const c10::IValue& value : fn.inputs()) {
    if (value.isDouble()) call->scalars.push_back(value.toDouble());
    if (value.isInt()) call->scalars.push_back(static_cast<double>(value.toInt()));
    std::vector<at::Tensor> tensors;
    collect_tensors(value, tensors);
    for (const at::Tensor& tensor : tensors) call->inputs.push_back({{}, tensor, {}});
  }
  if (call->inputs.empty()) return call;
  if (overwrites(op)) {
    call->inputs.erase(call->inputs.begin());
  } else if (writes_in_place(op)) {  // its current values are lost when the op ends
    OpInput& written = call->inputs.front();
    written.written_over = tensor_facts(written.tensor);
    written.tensor = at::Tensor();
  }
  return call;
}

void OpWatch::op_ends(const at::RecordFunction& fn, OpCall& call) {
  const LookAside aside;
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : fn.outputs()) collect_tensors(value, results);
  const std::string_view op = fn.name();
  if (results.empty() || leaves_uninitialised(op)) return;
  const auto is_also = [](const at::Tensor& tensor) {
    return [memory = memory_of(tensor)](const OpInput& input) {
      return input.tensor.defined() && memory_of(input.tensor) == memory;
    };
  };
  if (std::string_view(fn.overload_name()).find("out") != std::string_view::npos)
    std::erase_if(call.inputs, is_also(results.front()));
  const auto result = std::ranges::find_if_not(results, is_finite);
  if (result == results.end())
    return forget(call.sources_before);  // non-finite values inside did not reach the output
  const bool is_view = std::ranges::any_of(call.inputs, is_also(*result));
  const bool asked_for =
      std::ranges::any_of(call.scalars, [](double value) { return !std::isfinite(value); });
  if (!is_view && !asked_for) judge(op, call, *result);
}

void OpWatch::judge(std::string_view op, OpCall& call, const at::Tensor& result) {
  std::string from;
  for (OpInput& input : call.inputs) {
    const NamedTensor* origin = nullptr;
    if (input.tensor.defined()) {
      const auto name = names_.find(memory_of(input.tensor));
      if (name != names_.end()) input.name = name->second;
      if (is_finite(input.tensor)) continue;
      origin = find_bad(input.tensor);
    } else if (input.written_over.finite()) {
      continue;
    }
    if (origin == nullptr) return;  // an earlier op produced it
    from = origin->name;
  }
  if (!from.empty() && moves_values(op)) {
    bad_.push_back({from, result});
    return;
  }
  BadValue source{.op = std::string(op), .value = tensor_facts(result), .from = from};
  for (const OpInput& input : call.inputs) source.inputs.push_back({input.name, input.facts()});
  if (from.empty()) source.hints = op_hints(source.op, call.inputs, call.scalars, result);
  if (const BadValue* inside = first(call.sources_before)) {
    source.inner = inside->inner.empty() ? inside->op : inside->inner;
    for (const Hint& hint : inside->hints) {
      if (std::ranges::find(source.hints, hint.name, &Hint::name) == source.hints.end())
        source.hints.push_back(hint);
    }
    forget(call.sources_before);
  }
  if (sources_.size() < kMostSources) sources_.push_back(std::move(source));
}

LookAside::LookAside() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
LookAside::~LookAside() { omp_set_num_threads(threads_); }

}  // namespace lft::train
