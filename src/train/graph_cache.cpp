#include "src/train/graph_cache.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/common/error.h"

namespace lft {
namespace {

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.clone());
  return out;
}

void restore(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(values[i]);
}

bool finite(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); });
}

/// Where sums may be taken in any order, bfloat16 results differ in their last bits; a graph that uses a wrong address is off by far more.
bool agrees(const at::Tensor& replayed, const at::Tensor& ran, bool exact) {
  if (replayed.equal(ran)) return true;
  constexpr double kTolerance = 0x1p-5;
  return !exact && (replayed - ran).norm().item<double>() <= kTolerance * ran.norm().item<double>();
}

/// In one line.
std::string reason(const std::exception& error) {
  std::string text = error.what();
  if (const auto* own = dynamic_cast<const Error*>(&error); own != nullptr && !own->info().found.empty()) text += ": " + own->info().found;
  return text.substr(0, text.find('\n'));
}

}  // namespace

void GraphCache::drop_graphs() {
  for (auto& [key, known] : known_) known.graph.reset();
  graphs_ = 0;
}

void GraphCache::give_up(const std::string& key, const std::string& why) {
  drop_graphs();
  arena_->close();
  gave_up_ = true;
  notes_.push_back("going on without CUDA graphs (" + key + "): " + why);
}

void GraphCache::start_over() {
  if (gave_up_) return;
  drop_graphs();
  arena_->start_over();
}

/// The body itself first; then its graph from the same start. Only the body's own errors go on: a run that fits without graphs and their
/// proof has to fit.
void GraphCache::capture(const std::string& key, Known& known, const std::vector<at::Tensor>& outputs, const std::function<void()>& body) {
  std::vector<at::Tensor> before, after;
  std::string why = "a replay does not give what the pass gave";
  try {
    before = clones(outputs);
  } catch (const std::exception& error) {
    give_up(key, reason(error));
  }
  arena_->run(body);
  if (gave_up_) return;
  try {
    if (!finite(outputs)) return;  // of values that are not finite nothing can be shown: the next pass is as good
    after = clones(outputs);
    known.graph = arena_->capture(body);
    restore(outputs, before);
    known.graph->replay();
    bool same = true;
    for (size_t i = 0; i < outputs.size(); ++i) same &= agrees(outputs[i], after[i], exact_);
    if (same) {
      notes_.push_back("CUDA graph " + std::to_string(++graphs_) + " (of at most " + std::to_string(kMost) + "): " + key + ", " +
                       std::to_string(known.graph->nodes()) + " nodes");
      return;
    }
  } catch (const std::exception& error) {
    why = reason(error);
  }
  if (!after.empty()) restore(outputs, after);
  give_up(key, why);
}

void GraphCache::run(const std::string& key, int64_t size, const std::vector<at::Tensor>& outputs, const std::function<void()>& body) {
  if (size > largest_) {  // what it frees holds the smaller ones; theirs would lie beside it for good
    start_over();
    largest_ = size;
  }
  Known& known = known_[key];
  if (uses_ && known.graph) return known.graph->replay();
  const bool captures = uses_ && known.ran && arena_->captures() && graphs_ < kMost;
  if (captures || (!known.ran && !gave_up_)) arena_->give_back();
  if (captures) {
    capture(key, known, outputs, body);
  } else {
    arena_->run(body);
    known.ran = true;
  }
}

}  // namespace lft
