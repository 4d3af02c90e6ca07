#include "src/train/machine/graph_cache.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"
#include "src/train/machine/device.h"

namespace lft::train {
namespace {

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.clone());
  return out;
}

void restore(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(values[i]);
}

/// Without a copy: a NaN appears as both extremes, and an infinity as one.
bool finite(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    if (tensor.numel() == 0) return true;
    const auto [least, most] = at::aminmax(tensor);
    return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
  });
}

/// Without a fixed order of sums bfloat16 results differ in the last bits; a graph that uses a
/// wrong address differs by far more.
bool agrees(const at::Tensor& replayed, const at::Tensor& ran, bool exact) {
  if (replayed.equal(ran)) return true;
  constexpr double kTolerance = 0x1p-5;
  return !exact && (replayed - ran).norm().item<double>() <= kTolerance * ran.norm().item<double>();
}

/// The message on one line.
std::string reason(const std::exception& error) {
  std::string text = error.what();
  if (const auto* own = dynamic_cast<const Error*>(&error);
      own != nullptr && !own->info().found.empty())
    text += ": " + own->info().found;
  return text.substr(0, text.find('\n'));
}

}  // namespace

/// An error in a part of the work.
struct GraphCache::Fault {
  std::exception_ptr error;  // null: none
  bool memory = false;       // memory ran out
  std::string why;
};

GraphCache::Fault GraphCache::fault_of(const std::function<void()>& part) {
  try {
    part();
    return {};
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);  // CUDA's own calls
    const bool memory =
        is_out_of_memory(error) || (own != nullptr && own->kind() == ErrorKind::kResource);
    return {std::current_exception(), memory, reason(error)};
  }
}

void GraphCache::drop_graphs() {
  for (auto& [key, known] : known_) known.graph.reset();
  graphs_ = 0;
}

/// An out-of-memory error drops one graph; any other error may affect all of them.
void GraphCache::give_up(const std::string& key, Known& known, const Fault& fault) {
  if (fault.memory) {
    known.refused = true;
    arena_->give_back();
    notes_.push_back("continuing without the CUDA graph of " + key + ": " + fault.why);
    return;
  }
  drop_graphs();
  arena_->close();
  gave_up_ = true;
  notes_.push_back("continuing without CUDA graphs (" + key + "): " + fault.why);
}

void GraphCache::start_over() {
  if (gave_up_) return;
  drop_graphs();
  arena_->start_over();
}

/// Runs the body first, then its graph from the same state. Only the body's own errors are
/// rethrown, except an out-of-memory error that the copies may have caused: a run that fits without
/// graphs must also fit with them.
void GraphCache::capture(const std::string& key, Known& known,
                         const std::vector<at::Tensor>& outputs,
                         const std::function<void()>& body) {
  std::vector<at::Tensor> before;
  Fault fault = fault_of([&] { before = clones(outputs); });
  if (!fault.error) {
    fault = fault_of([&] { arena_->run(body); });
    if (!fault.error) return prove(key, known, outputs, body, std::move(before));
    if (!fault.memory) std::rethrow_exception(fault.error);
    restore(outputs, before);
    before.clear();
    start_over();  // the arena is fragmented by now
  }
  give_up(key, known, fault);
  arena_->run(body);
}

/// `outputs` are the body's results from `before`, and are unchanged at the end.
void GraphCache::prove(const std::string& key, Known& known, const std::vector<at::Tensor>& outputs,
                       const std::function<void()>& body, std::vector<at::Tensor> before) {
  std::vector<at::Tensor> after;
  std::unique_ptr<CudaGraph> graph;
  const Fault fault = fault_of([&] {
    if (!finite(outputs))
      return;  // non-finite values cannot be compared: the next pass can be used instead
    after = clones(outputs);
    graph = arena_->capture(body);
    restore(outputs, before);
    before.clear();  // frees memory for the comparison
    graph->replay();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!agrees(outputs[i], after[i], exact_))
        throw Error(ErrorKind::kInternal, "a replay does not give what the pass gave");
    }
  });
  if (fault.error) {
    if (!after.empty()) restore(outputs, after);
    before.clear();
    after.clear();
    graph.reset();
    return give_up(key, known, fault);
  }
  if (!graph) return;
  notes_.push_back("CUDA graph " + std::to_string(++graphs_) + " (of at most " +
                   std::to_string(kMost) + "): " + key + ", " + std::to_string(graph->nodes()) +
                   " nodes");
  known.graph = std::move(graph);
}

void GraphCache::run(const std::string& key, int64_t size, const std::vector<at::Tensor>& outputs,
                     const std::function<void()>& body) {
  if (size > largest_) {  // smaller sizes reuse the larger memory instead of adding to it
    start_over();
    largest_ = size;
  }
  Known& known = known_[key];
  if (uses_ && known.graph) {
    const Fault fault = fault_of([&] { known.graph->replay(); });
    if (!fault.error) return;
    if (!fault.memory) std::rethrow_exception(fault.error);
    known.graph.reset();
    --graphs_;
    give_up(key, known, fault);
  }
  const bool captures =
      uses_ && known.ran && !known.refused && arena_->captures() && graphs_ < kMost;
  if (captures || (!known.ran && !gave_up_)) arena_->give_back();
  if (captures) {
    capture(key, known, outputs, body);
  } else {
    arena_->run(body);
    known.ran = true;
  }
}

}  // namespace lft::train
