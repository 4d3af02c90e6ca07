// Watches every single op of LibTorch while it lives, and keeps those whose result is not finite
// though what they were given is. Knows no module and no graph.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/train/explain/tensor_facts.h"

namespace lft::train {

/// A named cause, with the numbers that show it.
struct Hint {
  std::string name, evidence;
};

/// A value that is not finite, and its maker.
struct BadValue {
  std::string module = {};  // dotted path; empty: outside any module, or not looked for
  std::string op = {};      // as it was called: "aten::scaled_dot_product_attention"; of a backward
                            // pass the graph node that returned it: "LogBackward0"
  std::string inner = {};   // the op inside `op` that made it; empty: unknown, or itself
  TensorFacts value = {};
  std::vector<NamedFacts> inputs = {};  // of the op; of a node the gradients that it received
  std::string from = {};     // what `op` read that was bad from the start (a weight, the pixels);
                             // empty: its inputs were finite
  bool inputs_known = true;  // off where the maker is no op of LibTorch: then `inputs` is empty
  std::vector<Hint> hints = {};
};

/// One input of an op: the tensor where it is still as it was, else its range from before the op
/// wrote over it.
struct OpInput {
  std::string name;  // empty: none
  at::Tensor tensor;
  TensorFacts written_over;

  TensorFacts facts() const { return tensor.defined() ? tensor_facts(tensor) : written_over; }
};
/// log of zero or of a negative number, square root of a negative number, division by zero, exp and
/// attention scores and products beyond what a dtype holds. `scalars`: the op's plain numbers.
std::vector<Hint> op_hints(const std::string& op, const std::vector<OpInput>& inputs,
                           const std::vector<double>& scalars, const at::Tensor& result);

/// Ops of other threads that autograd runs for this one are seen, too. One at a time in a process.
/// An op that was told to write an infinity (a mask's fill) and one that only moves values along
/// are no source.
class OpWatch {
 public:
  /// `known`: tensors that have a name (weights, pixels), finite or not.
  explicit OpWatch(const std::vector<NamedTensor>& known);
  ~OpWatch();
  OpWatch(const OpWatch&) = delete;

  size_t mark() const { return sources_.size(); }  // how many sources were kept so far
  const BadValue* first(size_t since) const;       // since a mark; nullptr: none
  void forget(size_t since);                       // what came since a mark was harmless
  void watch(bool on) { watching_ = on; }          // off: nothing is looked at
  /// What was bad from the start and shares its memory with this tensor or was copied to it;
  /// nullptr: none.
  const NamedTensor* find_bad(const at::Tensor& tensor) const;

 private:
  struct OpCall;
  std::unique_ptr<at::ObserverContext> op_starts(const at::RecordFunction& fn) const;
  void op_ends(const at::RecordFunction& fn, OpCall& call);
  void judge(std::string_view op, OpCall& call, const at::Tensor& result);

  std::unordered_map<const void*, std::string> names_;  // by memory
  std::vector<NamedTensor> bad_;  // from the start, and copies of such; held, so that their memory
                                  // is not used for anything else
  std::vector<BadValue> sources_;
  at::CallbackHandle handle_{};
  bool watching_ = true;
  static inline OpWatch* current_ = nullptr;  // LibTorch's callbacks are plain functions
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

}  // namespace lft::train
