#include "src/train/explain/autograd_trace.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "models/base/call.h"
#include "src/train/explain/pass_walk.h"

namespace lft::train {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using WeakStorage =
    c10::weak_intrusive_ptr<c10::StorageImpl>;  // its address is not reused while this exists

/// LibTorch's description of a saved tensor: "[CPUFloatType [2, 3]], ... is at version 3; expected
/// version 2 instead". For a saved view it gives neither shape nor version.
struct SavedFault {
  std::string shape;
  int64_t found = std::numeric_limits<int64_t>::max(), expected = 0;

  static std::optional<SavedFault> parse(const std::string& text) {
    const auto number_behind = [&](std::string_view mark) -> std::optional<int64_t> {
      const size_t at = text.find(mark);
      if (at == std::string::npos) return std::nullopt;
      return std::strtoll(text.c_str() + at + mark.size(), nullptr, 10);
    };
    if (text.find("its base has been modified inplace") != std::string::npos) return SavedFault{};
    const std::optional<int64_t> found = number_behind("is at version "),
                                 expected = number_behind("expected version ");
    const size_t end = text.find("]]"), begin = text.rfind('[', end);
    if (!found || !expected || end == std::string::npos || begin == std::string::npos)
      return std::nullopt;
    return SavedFault{text.substr(begin, end + 1 - begin), *found, *expected};
  }
};

/// An op that changed a tensor in place.
struct Change {
  std::string op, module, shape;
  int64_t version = 0;     // after it
  uint64_t next_node = 0;  // number of the next graph node
  const void* memory = nullptr;
  WeakStorage held;
};

/// Memory that a node may have saved, and the number of changes recorded before that.
struct Held {
  const void* memory = nullptr;
  size_t changes = 0;
};

template <class Values>
std::vector<at::Tensor> tensors_of(const Values& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
  }
  return tensors;
}

/// Shared with the hooks that it adds to the graph, in case a graph outlives it.
class PassWatcher : public CallObserver, public std::enable_shared_from_this<PassWatcher> {
 public:
  explicit PassWatcher(const torch::nn::Module& model) {
    for (const auto& parameter : model.named_parameters()) {
      names_.emplace(memory_of(parameter.value()), parameter.key());
      if (parameter.value().requires_grad()) trainables_.push_back(parameter.value());
    }
  }

  PassTrace run(const std::function<at::Tensor()>& loss) {
    current = this;
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&op_starts, &op_ends)
                                                       .needsInputs(true)
                                                       .needsOutputs(true)
                                                       .scopes({at::RecordScope::FUNCTION}));
    try {
      const ObserveCalls observe(*this);
      const at::Tensor result = loss();
      claim(result, "");
      trace_.backward = true;
      torch::autograd::grad({result}, trainables_, {}, /*retain_graph=*/std::nullopt,
                            /*create_graph=*/false, /*allow_unused=*/true);
    } catch (const c10::Error& error) {
      failed(error.msg(), module_path_of(error));
    } catch (const std::exception& error) {
      failed(error.what(), "");
    }
    at::removeCallback(handle);
    current = nullptr;
    return std::move(trace_);
  }

  void before(const std::string& path, const torch::nn::Module& module,
              const std::vector<at::Tensor>& inputs) override {
    if (outer_ != nullptr) outer_->before(path, module, inputs);
    const bool graph = std::ranges::any_of(inputs, &at::Tensor::requires_grad);
    const auto parameters = module.parameters();
    const bool trains = std::ranges::any_of(parameters, &at::Tensor::requires_grad);
    for (const at::Tensor& input : inputs) claim(input, calls_.empty() ? "" : calls_.back().path);
    calls_.push_back({path, graph || trains, {}});
    for (const at::Tensor& input : inputs)
      calls_.back().held.push_back({memory_of(input), changes_.size()});
    for (const at::Tensor& parameter : parameters)
      calls_.back().held.push_back({memory_of(parameter), changes_.size()});
  }

  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    const bool graph =
        std::ranges::any_of(outputs, [](const at::Tensor& y) { return y.requires_grad(); });
    if (!trace_.backward && calls_.back().learns && !graph && trace_.cut_in.empty()) {
      trace_.cut_in = path;
      trace_.graph_off = !at::GradMode::is_enabled();
    }
    for (const at::Tensor& output : outputs) {
      claim(output, path);
      calls_.back().held.push_back({memory_of(output), changes_.size()});
    }
    of_module_[path] = std::move(calls_.back().held);
    calls_.pop_back();
    if (outer_ != nullptr) outer_->after(path, module, outputs);
  }

 private:
  struct Call {
    std::string path;
    bool learns = false;  // its input has a graph, or it has a trainable
    std::vector<Held> held;
  };
  struct OpContext : at::ObserverContext {
    std::vector<const void*> memory;
    std::string parameter;
  };

  /// Records the node that is about to run.
  class NodeHook : public torch::autograd::FunctionPreHook {
   public:
    NodeHook(std::weak_ptr<PassWatcher> watcher, const Node& node, std::string module)
        : watcher_(std::move(watcher)), node_(node), module_(std::move(module)) {}
    variable_list operator()(const variable_list& gradients) override {
      if (const auto watcher = watcher_.lock()) {
        watcher->trace_.maker = graph_node_name(node_);
        watcher->trace_.module = module_;
        watcher->node_ = &node_;
        watcher->node_number_ = node_.sequence_nr();
      }
      return gradients;
    }

   private:
    std::weak_ptr<PassWatcher> watcher_;
    const Node& node_;
    std::string module_;
  };

  /// Assigns every node behind `tensor` that has no module yet to `module`.
  void claim(const at::Tensor& tensor, const std::string& module) {
    visit_new_nodes(tensor, claimed_, [&](Node& node) {
      node.add_pre_hook(std::make_unique<NodeHook>(weak_from_this(), node, module));
    });
  }

  static std::unique_ptr<at::ObserverContext> op_starts(const at::RecordFunction& fn) {
    auto op = std::make_unique<OpContext>();
    if (current == nullptr) return op;
    const std::vector<at::Tensor> inputs = tensors_of(fn.inputs());
    for (const at::Tensor& input : inputs) op->memory.push_back(memory_of(input));
    if (!inputs.empty() && std::string_view(fn.name()).ends_with('_')) {
      const auto name = current->names_.find(memory_of(inputs.front()));
      if (name != current->names_.end()) op->parameter = name->second;
    }
    return op;
  }

  static void op_ends(const at::RecordFunction& fn, at::ObserverContext* context) {
    if (current == nullptr || context == nullptr) return;
    current->op_ended(fn, static_cast<OpContext&>(*context));
  }

  void op_ended(const at::RecordFunction& fn, OpContext& op) {
    const std::string name = fn.name(), module = current_module_path();
    if (std::uncaught_exceptions() > 0) {
      if (!threw_ && !trace_.backward) {
        threw_ = true;  // an enclosing op ends next
        trace_.maker = name;
        trace_.parameter = op.parameter;
      }
      return;
    }
    const std::vector<at::Tensor> results = tensors_of(fn.outputs());
    if (results.empty()) return;
    const at::Tensor& result = results.front();
    if (result.grad_fn() != nullptr) {  // tensors that the node may have saved
      std::vector<Held>& held = of_node_[result.grad_fn().get()];
      for (const void* memory : op.memory) held.push_back({memory, changes_.size()});
      held.push_back({memory_of(result), changes_.size()});
    }
    if (!name.ends_with('_') || name.ends_with("__") || result.is_inference() ||
        !result.has_storage())
      return;
    changes_.push_back({name, module, c10::str(result.sizes()), result._version(),
                        at::sequence_number::peek(), memory_of(result),
                        WeakStorage(result.storage().getWeakStorageImpl())});
  }

  void failed(const std::string& text, const std::string& module) {
    trace_.failed = true;
    trace_.error = text;
    if (!module.empty()) trace_.module = module;
    if (!trace_.backward) return;
    if (node_ == nullptr) trace_.maker.clear();
    if (const auto fault = SavedFault::parse(text); fault && node_ != nullptr) find_change(*fault);
  }

  /// Finds the change after a saved tensor's version: one of a tensor that the node had access to,
  /// else one of a tensor with the same shape.
  void find_change(const SavedFault& fault) {
    std::vector<Held> known = of_node_[node_];
    const std::vector<Held>& of_module = of_module_[trace_.module];
    known.insert(known.end(), of_module.begin(), of_module.end());
    const Change *best = nullptr, *by_shape = nullptr;
    for (size_t i = 0; i < changes_.size(); ++i) {
      const Change& change = changes_[i];
      if (change.next_node <= node_number_ || change.version <= fault.expected ||
          change.version > fault.found)
        continue;
      const bool same_memory = std::ranges::any_of(known, [&](const Held& held) {
        return held.memory == change.memory && held.changes <= i;
      });
      if (same_memory && best == nullptr) best = &change;
      if (change.shape == fault.shape && by_shape == nullptr) by_shape = &change;
    }
    if (best == nullptr) best = by_shape;
    if (best != nullptr)
      trace_.changed_by = best->op + " in " + (best->module.empty() ? "no module" : best->module);
  }

  static inline PassWatcher* current = nullptr;  // LibTorch's callbacks are plain functions

  CallObserver* const outer_ =
      call_detail::observer();  // may be the cause: it observes this pass as it did the first
  PassTrace trace_;
  std::vector<at::Tensor> trainables_;
  std::unordered_map<const void*, std::string> names_;  // parameter names by memory address
  std::vector<Call> calls_;                             // calls that are running
  std::vector<Change> changes_;
  std::unordered_map<const Node*, std::vector<Held>> of_node_;  // inputs and outputs of its op
  std::unordered_map<std::string, std::vector<Held>>
      of_module_;  // the same for a module's last call, by path
  KnownNodes claimed_;
  const Node* node_ = nullptr;  // the node that started last
  uint64_t node_number_ = 0;
  bool threw_ = false;
};

}  // namespace

std::string graph_node_name(const Node& node) {
  std::string name = node.name();
  if (const size_t open = name.find("CppNode<"); open != std::string::npos) {
    name = name.substr(open + 8, name.rfind('>') - open - 8);
    name = name.substr(name.rfind(':') + 1);
  }
  return name;
}

PassTrace trace_pass(const torch::nn::Module& model, const std::function<at::Tensor()>& loss) {
  return std::make_shared<PassWatcher>(model)->run(loss);
}

}  // namespace lft::train
