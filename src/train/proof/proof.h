// The trainability proof before step 1: every trainable has one owner, affects the loss and
// receives a gradient. Separate from the step's own finite check.
#pragma once
#include <string>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/io/json.h"
#include "src/train/inputs/run_model.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// One micro-batch and the settings of its passes.
struct Probe {
  std::vector<data::Sample> samples;
  std::vector<int64_t> indices = {};  // of the samples in the dataset
  data::EncodeOptions encode;
  at::Device device = at::kCPU;
  at::ScalarType compute = at::kFloat;
  double loss_scale = 1;
  int64_t recompute = 0;  // activation checkpointing: every Nth block
  bool offload_activations = false;
  bool packed = false;  // train.max_tokens_per_step: no padding
};
/// The first micro-batch of the first epoch, in training order, with a supervised token and, if
/// projector or vision is trained, an image before one. kInput if the whole dataset has no
/// supervised token; kUsage if projector or vision is trained and no image affects the loss.
Probe find_probe(const RunInputs& inputs, const std::vector<lora::Trainable>& trainables);

struct ProofRow {
  std::string module = {}, scope = {}, dtype = {},
              group = {};  // module: canonical, without lora_A and lora_B
  bool adapter = false;    // else fully trained
  int64_t parameters = 0;
  double lr = 0;    // the group's, before the schedule
  double lr_b = 0;  // of an adapter's B; else lr
  bool reachable = false;
  double grad_norm_a = 0,
         grad_norm_b = 0;  // L2 of the mean loss's gradient; grad_norm_b is a whole module's
};
struct TrainabilityReport {
  std::vector<ProofRow> rows = {};
  std::vector<ExcludedModule> excluded = {};
  int64_t trainable = 0, total = 0;  // parameters
  std::vector<std::string> probe_ids = {};
  double probe_loss = 0;
  double pass_s = 0;         // time of the first pass, which is slower than later ones, without
                             // that of image features that are kept
  bool probe_finite = true;  // false: norms are meaningless, reachability decided
  std::string compute = {};  // fp32, bf16, fp16
  double loss_scale = 1;     // of the final pass; an overflow of the gradients reduces it,
                             // as in the scaler
  int64_t underflowed = 0;  // modules with a zero gradient in `compute` and a non-zero one in FP32,
                            // whose norms are shown
};

/// kUsage with a separate text for each case: nothing trainable; a frozen trainable; two owners of
/// one memory range; an optimizer with tensors that the model no longer uses; a trainable that is
/// not FP32; a parameter without an owner; a tensor that does not affect the loss; a module whose
/// gradient is exactly zero though it could learn (for an adapter that of B; also of A if B is not
/// zero). One forward and backward pass without dropout; no parameter, gradient, moment or
/// generator changes.
TrainabilityReport check_trainable(family::Model& model,
                                   const std::vector<lora::Trainable>& trainables,
                                   const std::vector<Optimizer*>& optimizers,
                                   const std::vector<ExcludedModule>& excluded, const Probe& probe);

/// Anticipates the first update: with every zero B made non-zero each A has a gradient (then in
/// proof.rows), else kUsage. B is restored bit by bit.
void prove_second_step(family::Model& model, const std::vector<lora::Trainable>& trainables,
                       const Probe& probe, TrainabilityReport& proof);

/// Lines to print, at most 80 columns wide where names allow it: a row for equal layers of a stack;
/// excluded modules and the reason; counts and share last.
std::vector<std::string> trainability_table(const TrainabilityReport& proof);
/// The full report, for trainability.json.
io::Json trainability_json(const TrainabilityReport& proof);

}  // namespace lft::train
