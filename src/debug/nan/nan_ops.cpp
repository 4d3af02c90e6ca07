#include "src/debug/nan/nan_ops.h"

#include <ATen/core/ivalue.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "src/debug/nan/nan_hints.h"
#include "src/train/explain/pass_walk.h"

namespace lft::debug {
namespace {

constexpr size_t kMostSources = 64;  // kept at once: the first is what counts

bool is_among(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

/// Memory that nobody has written yet.
bool leaves_uninitialised(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_empty") ||
         op.starts_with("aten::_empty") || op.starts_with("aten::resize") || op == "aten::set_";
}

/// The first argument is written whatever it held.
bool overwrites(std::string_view op) {
  return is_among(op, {"aten::copy_", "aten::fill_", "aten::zero_"});
}

bool writes_in_place(std::string_view op) { return op.ends_with('_') && !op.ends_with("__"); }

/// Values go on as they are, but for a rounding.
bool moves_values(std::string_view op) {
  return is_among(op, {"aten::to", "aten::_to_copy", "aten::copy_", "aten::clone",
                       "aten::contiguous", "aten::reshape", "aten::flatten", "aten::cat",
                       "aten::index_select", "aten::select", "aten::masked_select"});
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : tensor.unsafeGetTensorImpl();
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) { return memory_of(a) == memory_of(b); }

/// What is known of an op while it runs.
struct OpCall : at::ObserverContext {
  std::vector<OpInput> inputs;
  std::vector<double> scalars;
  size_t sources_before = 0;
};

}  // namespace

struct OpWatch::State {
  std::unordered_map<const void*, std::string> names;  // by memory
  std::vector<NamedTensor> bad;  // from the start, and copies of such; held, so that their memory
                                 // is not used for anything else
  std::vector<BadOp> sources;
  at::CallbackHandle handle{};
  bool watching = true;

  const NamedTensor* find_bad(const at::Tensor& tensor) const {
    const auto found = std::find_if(bad.begin(), bad.end(), [&](const NamedTensor& each) {
      return share_memory(each.tensor, tensor);
    });
    return found == bad.end() ? nullptr : &*found;
  }

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn) {
    const LookAside aside;
    auto call = std::make_unique<OpCall>();
    call->sources_before = sources.size();
    const std::string_view op = fn.name();
    for (const c10::IValue& value : fn.inputs()) {
      if (value.isDouble()) call->scalars.push_back(value.toDouble());
      if (value.isInt()) call->scalars.push_back(static_cast<double>(value.toInt()));
      std::vector<at::Tensor> tensors;
      train::collect_tensors(value, tensors);
      for (const at::Tensor& tensor : tensors) call->inputs.push_back({{}, tensor, {}});
    }
    if (call->inputs.empty()) return call;
    if (overwrites(op)) {
      call->inputs.erase(call->inputs.begin());
    } else if (writes_in_place(op)) {  // what it holds now is gone when the op ends
      OpInput& written = call->inputs.front();
      written.facts = tensor_facts(written.tensor);
      written.tensor = at::Tensor();
    }
    return call;
  }

  void end(const at::RecordFunction& fn, OpCall& call) {
    const LookAside aside;
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : fn.outputs()) train::collect_tensors(value, results);
    const std::string_view op = fn.name();
    if (results.empty() || leaves_uninitialised(op)) return;
    if (std::string_view(fn.overload_name()).find("out") != std::string_view::npos) {
      std::erase_if(call.inputs, [&](const OpInput& input) {
        return input.tensor.defined() && share_memory(input.tensor, results.front());
      });
    }
    const auto result = std::find_if_not(results.begin(), results.end(), is_finite);
    if (result == results.end())
      return forget(call.sources_before);  // what was not finite inside has not come out
    const bool is_view =
        std::any_of(call.inputs.begin(), call.inputs.end(), [&](const OpInput& input) {
          return input.tensor.defined() && share_memory(input.tensor, *result);
        });
    const bool asked_for = std::any_of(call.scalars.begin(), call.scalars.end(),
                                       [](double value) { return !std::isfinite(value); });
    if (!is_view && !asked_for) judge(op, call, *result);
  }

  void judge(std::string_view op, OpCall& call, const at::Tensor& result) {
    std::string from;
    for (OpInput& input : call.inputs) {
      if (const auto name =
              input.tensor.defined() ? names.find(memory_of(input.tensor)) : names.end();
          name != names.end()) {
        input.name = name->second;
      }
      if (input.tensor.defined() ? is_finite(input.tensor) : input.facts.finite()) continue;
      const NamedTensor* origin = input.tensor.defined() ? find_bad(input.tensor) : nullptr;
      if (origin == nullptr) return;  // it came from an op before
      from = origin->name;
    }
    if (!from.empty() && moves_values(op)) {
      bad.push_back({from, result});
      return;
    }
    BadOp source{.op = std::string(op),
                 .inner = {},
                 .value = tensor_facts(result),
                 .inputs = {},
                 .from = from,
                 .hints = {}};
    for (const OpInput& input : call.inputs) {
      source.inputs.push_back(
          {input.name, input.tensor.defined() ? tensor_facts(input.tensor) : input.facts});
    }
    if (from.empty()) source.hints = op_hints(source.op, call.inputs, call.scalars, result);
    if (sources.size() > call.sources_before) {
      const BadOp& inside = sources[call.sources_before];
      source.inner = inside.inner.empty() ? inside.op : inside.inner;
      for (const Hint& hint : inside.hints) {
        const auto same = [&](const Hint& each) { return each.name == hint.name; };
        if (std::none_of(source.hints.begin(), source.hints.end(), same))
          source.hints.push_back(hint);
      }
      forget(call.sources_before);
    }
    if (sources.size() < kMostSources) sources.push_back(std::move(source));
  }

  void forget(size_t since) {
    sources.erase(sources.begin() + static_cast<std::ptrdiff_t>(std::min(since, sources.size())),
                  sources.end());
  }

  static inline State* current = nullptr;  // LibTorch's callbacks are plain functions
};

LookAside::LookAside() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
LookAside::~LookAside() { omp_set_num_threads(threads_); }

OpWatch::OpWatch(const std::vector<NamedTensor>& known) : state_(std::make_unique<State>()) {
  for (const NamedTensor& each : known) {
    state_->names.emplace(memory_of(each.tensor), each.name);
    if (!is_finite(each.tensor)) state_->bad.push_back(each);
  }
  State::current = state_.get();
  const auto start = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    return State::current == nullptr || !State::current->watching ? nullptr
                                                                  : State::current->start(fn);
  };
  const auto end = [](const at::RecordFunction& fn, at::ObserverContext* call) {
    if (call != nullptr && State::current != nullptr && State::current->watching)
      State::current->end(fn, static_cast<OpCall&>(*call));
  };
  state_->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end)
                                                  .needsInputs(true)
                                                  .needsOutputs(true)
                                                  .scopes({at::RecordScope::FUNCTION}));
}

OpWatch::~OpWatch() {
  at::removeCallback(state_->handle);
  State::current = nullptr;
}

size_t OpWatch::mark() const { return state_->sources.size(); }
const BadOp* OpWatch::first(size_t since) const {
  return since < state_->sources.size() ? &state_->sources[since] : nullptr;
}
void OpWatch::forget(size_t since) { state_->forget(since); }
void OpWatch::watch(bool on) { state_->watching = on; }

std::string OpWatch::origin(const at::Tensor& tensor) const {
  const NamedTensor* found = state_->find_bad(tensor);
  return found == nullptr ? "" : found->name;
}

}  // namespace lft::debug
