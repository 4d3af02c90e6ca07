// AdamW over FP32 masters in groups of one learning rate each. Owns the moments, in FP32 or in 8
// bits, on the device or in host memory, the gradients' memory and that of the masters' shadows;
// knows no schedule and no clipping.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"
#include "models/ops/update/adamw8.h"
#include "src/train/optim/flat_tensors.h"

namespace lft::train {

struct ParamGroup {
  std::string name;  // base, projector
  double lr = 0;     // peak; the schedule multiplies it
  std::vector<size_t> members;
};

/// How and where the moments are kept. Where they are changes no bit of an update.
struct MomentStorage {
  bool eight_bits = false;  // of tensors with kLeast8Bit elements and more
  bool offload = false;  // in host memory (pinned where the weights are on a GPU); an update brings
                         // them to the weights' device in pieces
  int64_t piece = 512 * kChunk;  // elements of a piece, a multiple of kChunk
};
constexpr int64_t kLeast8Bit = 4096;

/// One trainable and what the optimizer keeps for it. `steps` is this tensor's own t: a step
/// without its gradient, or not taken, leaves it.
struct AdamSlot {
  lora::Trainable param;
  at::Tensor exp_avg, exp_avg_sq;  // of its shape, float32 or 8-bit codes
  int64_t steps = 0;
  at::Tensor exp_avg_absmax = {}, exp_avg_sq_absmax = {};  // with codes: their blocks' scales
  bool in_8_bits() const { return exp_avg_absmax.defined(); }
};
/// The tensors a slot keeps, as a checkpoint names them: exp_avg.<name>, exp_avg_sq.<name>,
/// exp_avg_absmax.<name>, exp_avg_sq_absmax.<name>.
std::vector<std::pair<std::string, at::Tensor>> moment_tensors(const AdamSlot& slot);
/// A slot's moments as float32 beside its weight.
struct Moments {
  at::Tensor exp_avg, exp_avg_sq;
};
Moments moments(const AdamSlot& slot);
/// As before the first update; the weight stays.
void forget_moments(AdamSlot& slot);

class AdamW {
 public:
  AdamW(const std::vector<lora::Trainable>& trainables, std::vector<ParamGroup> groups,
        ops::AdamWOptions options, MomentStorage storage = {});
  /// To be called before a step's first pass: every .grad() is a part of one buffer, bound at the
  /// first call and from then on, full of zeros and absent until something is written into it (what
  /// a backward pass adds counts as written, whatever it is).
  void zero_gradients();
  /// Absent from here on, whatever they hold; bound all the same.
  void forget_gradients();
  /// The passes wrote all gradients of a scope, where nothing on the host could tell (a CUDA
  /// graph).
  void gradients_written(const std::string& scope);
  /// The buffer's part that holds a scope's. It keeps its place until drop_gradients().
  at::Tensor flat_gradients(const std::string& scope) const { return gradients_.of_scope(scope); }
  /// Whether the slot's is there and was written since zero_gradients().
  bool has_gradient(size_t slot) const;
  /// By slot; undefined where absent.
  std::vector<at::Tensor> gradients() const;
  /// Their memory is given back; no .grad() is left.
  void drop_gradients();

  /// Shadows of the masters that have one are kept in `compute` from here on, written by every
  /// update, and made anew now where something else wrote a master. FP32: none are kept.
  void keep_shadows(at::ScalarType compute);
  /// Starts the update number steps + 1 of every slot that has a gradient, at group.lr * factor and
  /// clipped as the verdict over gradients() says; a no-op on the device where that found a
  /// non-finite value. Does not wait. An absent gradient keeps weight, moments and t.
  void step(double factor, const ops::GradVerdict& verdict);
  /// To be called once read_stats() tells whether the last step() was taken: then its slots count
  /// it. Moments in host memory may be read from here on.
  void commit(bool taken);

  std::vector<AdamSlot>& slots() { return slots_; }  // in the order of the trainables
  const std::vector<AdamSlot>& slots() const { return slots_; }
  std::vector<ParamGroup>& groups() { return groups_; }

 private:
  ops::AdamWOptions options_;
  MomentStorage storage_;
  std::vector<ParamGroup> groups_;
  std::vector<AdamSlot> slots_;
  std::vector<size_t> stepped_;  // slots of the last step(), until commit()
  FlatTensors gradients_, shadows_;
  std::vector<int64_t> unwritten_;  // by slot: its gradient's version while it counts as absent
};

/// The base group, and a group "projector" when its learning rate differs and it has members.
/// projector_lr < 0 means lr. With a b_ratio other than 1 (LoRA+) every lora_B is in a group "base
/// B" or "projector B", at b_ratio times the learning rate.
std::vector<ParamGroup> param_groups(const std::vector<lora::Trainable>& trainables, double lr,
                                     double projector_lr, double b_ratio = 1);

}  // namespace lft::train
