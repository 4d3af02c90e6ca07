// The first steps of a run with a hash of every tensor that a step makes: batch, inputs and outputs
// of every module, loss, gradients, weights, moments. Writes nothing. For comparing runs tensor by
// tensor.
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
  std::string module = {};  // path of the call; empty where it is no module's
  std::string tensor =
      {};                  // a parameter's name, a part of the batch, or the number of the argument
  std::string shape = {};  // "float [4, 20, 32]"
  std::string hash = {};
};

struct Trace {
  std::vector<TraceRecord>
      records;        // in the order in which they came about; gradients from the loss backwards
  std::string ended;  // why it ended before its last step; empty: it did not
};

struct TraceOptions {
  int64_t steps = 5;
  /// A test's ways in, before anything is recorded of what they get. An output may be changed in
  /// place, without its graph noticing.
  std::function<void(int64_t step, data::StepSamples&)> samples_ready = {};
  std::function<void(int64_t step, const std::string& path, const std::vector<at::Tensor>& outputs)>
      output_ready = {};
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};

/// At most the recipe's number of steps; a step that is not finite is the last.
Trace trace_steps(const recipe::Recipe& recipe, const TraceOptions& options);

/// Lines of JSON, read back by parse_trace; kInput naming the line.
std::string trace_text(const Trace& trace);
Trace parse_trace(const std::string& text, const std::string& where);

/// 64 bits over the bytes of a tensor: equal bits, equal hash. For comparing two runs, not against
/// an adversary (that is src/base/hash.h).
uint64_t hash_bytes(const void* data, uint64_t bytes);
/// Over values in order, dtype and shape; wherever the tensor lives. Signed zeros and the bits of a
/// NaN count.
uint64_t tensor_hash(const at::Tensor& tensor);
/// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace lft::debug
