// The global batch of a step over all processes, and the exchange of their passes' results.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "models/objective/objective.h"
#include "src/data/loader.h"
#include "src/data/mismatched.h"
#include "src/dist/ranks.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

int64_t supervised_tokens(const std::vector<data::Sample>& samples);

struct GlobalBatch {
  std::vector<std::string> ids;      // of all samples, in order
  std::vector<int64_t> rows;         // of each micro-batch, in order
  int64_t first = 0;                 // index in `rows` of this process's first
  std::vector<std::string> skipped;  // skipped bad samples, with the reason
  int64_t supervised = 0, tokens = 0;
  std::vector<int64_t> supervised_of = {};  // tokens by source of data.train, up to the last
  bool has_image = false;
  std::vector<data::Answer> answers = {};  // of all samples, if they were asked for
  int signal = 0;                          // the first one received by a process

  int64_t most_rows() const;
  objective::GlobalBatchCounts counts() const;
};

/// The global batch of a single process. Does not check for signals. `answers`: for an objective
/// that uses the KL divergence.
GlobalBatch global_batch_of(const data::StepSamples& samples, bool answers = false);
/// The global batch of all processes, by one exchange. `signal`: of this process; 0: none. A single
/// process ignores it.
GlobalBatch gather_global_batch(dist::Ranks& ranks, const data::StepSamples& samples, int signal,
                                bool answers = false);

/// The passes of this process's micro-batches.
struct Passes {
  std::vector<at::Tensor> losses;     // one double each, in order
  std::vector<at::Tensor> sums = {};  // for the same, what the step reports: sums of
                                      // -log-probabilities by source, then the objective's figures
  std::vector<int64_t> routed = {};   // their tokens of each expert, layer by layer, summed
  bool reached = false;               // any trainable
};
/// Element by element; `sums` may be empty.
void add_counts(std::vector<int64_t>& sums, const std::vector<int64_t>& more);
/// The sum of the losses, added in order; undefined if nothing was reached.
at::Tensor total_loss(const Passes& passes);

/// Over all passes, undefined if there were none.
at::Tensor total_sums(const Passes& passes);

/// Another process ran out of memory and reports it.
struct OutOfMemoryElsewhere : std::bad_alloc {
  const char* what() const noexcept override { return "another process ran out of memory"; }
};

/// One exchange, after which the gradients of `optimizer` are the sums over all processes, in all
/// of them: a gradient exists if any process has it. `failed`: the out-of-memory exception of this
/// process's passes; null if none. If one ran out of memory, all throw: their own, or
/// OutOfMemoryElsewhere. Returns total_loss() over all, and stores the others' sums and routed
/// tokens in `passes`.
at::Tensor share_passes(dist::Ranks& ranks, Passes& passes, const std::exception_ptr& failed,
                        Optimizer& optimizer);

}  // namespace lft::train
