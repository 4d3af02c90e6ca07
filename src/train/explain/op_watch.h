// Observes every LibTorch op while it exists, and records those with a non-finite result and finite
// inputs. Independent of modules and graphs.
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

/// A named cause with the numbers that support it.
struct Hint {
  std::string name, evidence;
};

/// A value that is not finite, and the op that produced it.
struct BadValue {
  std::string module = {};  // dotted path; empty: outside any module, or not determined
  std::string op = {};      // as called: "aten::scaled_dot_product_attention"; for a backward
                            // pass the graph node that returned it: "LogBackward0"
  std::string inner = {};   // the op inside `op` that produced it; empty: unknown or `op`
  TensorFacts value = {};
  std::vector<NamedFacts> inputs = {};  // inputs of the op; of a node: received gradients
  std::string from = {};     // input of `op` that was bad from the start (a weight, the pixels);
                             // empty: its inputs were finite
  bool inputs_known = true;  // false if no LibTorch op produced it: then `inputs` is empty
  std::vector<Hint> hints = {};
};

/// One input of an op: the tensor if it is unchanged,
/// else its range before the op overwrote it.
struct OpInput {
  std::string name;  // empty: none
  at::Tensor tensor;
  TensorFacts written_over;

  TensorFacts facts() const { return tensor.defined() ? tensor_facts(tensor) : written_over; }
};
/// log of zero or a negative number, square root of a negative number, division by zero, and exp,
/// attention scores and products beyond a dtype's range. `scalars`: the op's plain numbers.
std::vector<Hint> op_hints(const std::string& op, const std::vector<OpInput>& inputs,
                           const std::vector<double>& scalars, const at::Tensor& result);

/// Also observes ops on autograd threads that run for this thread. One at a time per process. An op
/// that writes an infinity by intent (a mask's fill) and one that only moves values are not
/// sources.
class OpWatch {
 public:
  /// `known`: named tensors (weights, pixels), finite or not.
  explicit OpWatch(const std::vector<NamedTensor>& known);
  ~OpWatch();
  OpWatch(const OpWatch&) = delete;

  size_t mark() const { return sources_.size(); }  // number of sources recorded so far
  const BadValue* first(size_t since) const;       // the first since a mark; nullptr: none
  void forget(size_t since);                       // discards harmless sources since a mark
  void watch(bool on) { watching_ = on; }          // false: nothing is checked
  /// The tensor, bad from the start, that shares memory with this one or was copied to it; nullptr:
  /// none.
  const NamedTensor* find_bad(const at::Tensor& tensor) const;

 private:
  struct OpCall;
  std::unique_ptr<at::ObserverContext> op_starts(const at::RecordFunction& fn) const;
  void op_ends(const at::RecordFunction& fn, OpCall& call);
  void judge(std::string_view op, OpCall& call, const at::Tensor& result);

  std::unordered_map<const void*, std::string> names_;  // by memory address
  std::vector<NamedTensor> bad_;  // bad from the start, and their copies; kept alive so that their
                                  // memory is not reused
  std::vector<BadValue> sources_;
  at::CallbackHandle handle_{};
  bool watching_ = true;
  static inline OpWatch* current_ = nullptr;  // LibTorch's callbacks are plain functions
};

/// While it exists, ops of this thread are neither observed nor added to a graph, and run on this
/// thread only. For the checks themselves, which are short and frequent.
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
