// Watches every single op of LibTorch while it lives, and keeps those whose result is not finite
// though what they were given is. Knows no module and no graph.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/debug/nan/nan_facts.h"

namespace lft::debug {

/// A named cause, with the numbers that show it.
struct Hint {
  std::string name, evidence;
};

/// An op that made the first bad value of a stretch.
struct BadOp {
  std::string op;     // as it was called: "aten::scaled_dot_product_attention"
  std::string inner;  // the op inside it that made the value; empty: itself
  TensorFacts value;
  std::vector<NamedFacts> inputs;
  std::string
      from;  // which tensor that was bad from the start it read; empty: its inputs were finite
  std::vector<Hint> hints;
};

/// Ops of other threads that autograd runs for this one are seen, too. One at a time in a process.
/// An op that was told to write an infinity (a mask's fill) and one that only moves values along
/// are no source.
class OpWatch {
 public:
  /// `known`: tensors that have a name (weights, pixels), finite or not.
  explicit OpWatch(const std::vector<NamedTensor>& known);
  ~OpWatch();
  OpWatch(const OpWatch&) = delete;

  size_t mark() const;                     // how many sources were kept so far
  const BadOp* first(size_t since) const;  // since a mark; nullptr: none
  void forget(size_t since);               // what came since a mark was harmless
  /// The name of the tensor, bad from the start, that this one shares its memory with or was copied
  /// from; empty: none.
  std::string origin(const at::Tensor& tensor) const;
  void watch(bool on);  // off: nothing is looked at

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// While it lives, ops of this thread are neither watched nor put into a graph, and stay in this
/// thread: for the looking itself, which is short and often.
struct LookAside {
  LookAside();
  ~LookAside();
  LookAside(const LookAside&) = delete;

 private:
  at::NoGradGuard no_grad_;
  at::DisableRecordFunctionGuard not_watched_;
  int threads_;
};

}  // namespace lft::debug
