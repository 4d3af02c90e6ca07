#include "src/train/graph_cache.h"

#include <ATen/Functions.h>

#include <algorithm>

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

}  // namespace

void GraphCache::give_up(const std::string& key, const std::string& why) {
  for (auto& [other, known] : known_) known.graph.reset();
  gave_up_ = true;
  notes_.push_back("going on without CUDA graphs (" + key + "): " + why.substr(0, why.find('\n')));
}

/// The body itself first; then its graph from the same start. Only the body's own errors go on: a run that fits without graphs and their
/// proof has to fit.
void GraphCache::capture(const std::string& key, Known& known, const std::vector<at::Tensor>& outputs, const std::function<void()>& body) {
  std::vector<at::Tensor> before, after;
  std::string why = "a replay does not give what the pass gave";
  try {
    before = clones(outputs);
  } catch (const std::exception& error) {
    give_up(key, error.what());
  }
  arena_.run(body);
  if (gave_up_ || !finite(outputs)) return;  // of values that are not finite nothing can be shown: the next pass is as good
  try {
    after = clones(outputs);
    known.graph = arena_.capture(body);
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
    why = error.what();
  }
  if (!after.empty()) restore(outputs, after);
  give_up(key, why);
}

void GraphCache::run(const std::string& key, const std::vector<at::Tensor>& outputs, const std::function<void()>& body) {
  Known& known = known_[key];
  if (uses_ && known.graph) return known.graph->replay();
  if (uses_ && known.ran && arena_.captures() && !gave_up_ && graphs_ < kMost) {
    capture(key, known, outputs, body);
  } else {
    arena_.run(body);
    known.ran = true;
  }
}

}  // namespace lft
