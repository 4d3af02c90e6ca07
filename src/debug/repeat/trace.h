// Runs the first steps with a hash of every tensor of a step (batch, inputs and outputs of every
// module, loss, gradients, weights, moments), to compare runs by tensor. Writes nothing.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/recipe/recipe.h"
#include "src/train/optim/optimizer.h"

namespace lft::debug {

struct TraceRecord {
  int64_t step = 0;         // from 1; 0: before the first
  int64_t micro_batch = 0;  // from 0; -1: of the whole step
  std::string phase = {};   // weight, batch, input, output, loss, gradient, moment
  std::string module = {};  // path of the call; empty outside modules
  std::string tensor =
      {};                  // a parameter's name, a part of the batch, or the number of the argument
  std::string shape = {};  // "float [4, 20, 32]"
  std::string hash = {};
};

struct Trace {
  std::vector<TraceRecord>
      records;        // in the order of computation; gradients from the loss backwards
  std::string ended;  // why it ended early; empty: it did not
};

struct TraceOptions {
  int64_t steps = 5;
  /// For tests: called before tensors are recorded. An output may be changed in place, without
  /// recording in its graph.
  std::function<void(int64_t step, data::StepSamples&)> samples_ready = {};
  std::function<void(int64_t step, const std::string& path, const std::vector<at::Tensor>& outputs)>
      output_ready = {};
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};

/// Runs at most the recipe's number of steps, and ends after a step that is not finite.
Trace trace_steps(const recipe::Recipe& recipe, const TraceOptions& options);

/// Lines of JSON, read back by parse_trace; kInput naming the line.
std::string trace_text(const Trace& trace);
Trace parse_trace(const std::string& text, const std::string& where);

/// A 64-bit hash over the bytes of a tensor, for comparing runs; it is not cryptographic
/// (src/base/hash.h is).
uint64_t hash_bytes(const void* data, uint64_t bytes);
/// Hashes values in order, dtype and shape, on any device. Signed zeros and NaN bits are
/// distinguished.
uint64_t tensor_hash(const at::Tensor& tensor);
/// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace lft::debug
