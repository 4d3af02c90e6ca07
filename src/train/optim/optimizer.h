// Applies a rule (update_rule.h) to FP32 masters in groups with one learning rate each. Owns the
// moments, on the device or in host memory, and the memory of the gradients and of the masters'
// low-precision copies. Independent of the rule, the schedule and clipping.
#pragma once
#include <string>
#include <vector>

#include "kernels/common/chunks.h"
#include "src/train/optim/flat_tensors.h"
#include "src/train/optim/update_rule.h"

namespace lft::train {

struct ParamGroup {
  std::string name;  // base, projector, vision
  double lr = 0;     // peak; multiplied by the schedule
  std::vector<size_t> members;
  bool decays = true;  // optim.weight_decay applies to its members
};

/// Where the moments are stored, which does not affect results.
struct MomentStorage {
  bool offload = false;  // in host memory (pinned if the weights are on a GPU); an update copies
                         // them to the weights' device in pieces
  int64_t piece = 512 * kChunk;  // elements per piece, a multiple of kChunk
};

class Optimizer {
 public:
  Optimizer(const std::vector<lora::Trainable>& trainables, std::vector<ParamGroup> groups,
            RulePtr rule, MomentStorage storage = {});
  /// Call it before a step's first pass: every .grad() is a part of one buffer, bound at the first
  /// call. It is zero and counts as absent until it is written (any value added by a backward pass
  /// counts as written).
  void zero_gradients();
  /// Marks all gradients as absent; they stay bound to the buffer.
  void forget_gradients();
  /// Marks all gradients of a scope as written, for passes that the host cannot observe (a CUDA
  /// graph).
  void gradients_written(const std::string& scope);
  /// The same for one slot that another process wrote.
  void gradient_written(size_t slot) {
    gradients_.parts[slot].unsafeGetTensorImpl()->bump_version();
  }
  /// The complete buffer; undefined before the first zero_gradients().
  const at::Tensor& flat_gradients() const { return gradients_.flat; }
  /// The buffer's part for a scope. Its address is stable until drop_gradients().
  at::Tensor flat_gradients(const std::string& scope) const { return gradients_.of_scope(scope); }
  /// Whether the slot's gradient exists and was written since zero_gradients().
  bool has_gradient(size_t slot) const;
  /// By slot; undefined if absent.
  std::vector<at::Tensor> gradients() const;
  /// Frees the gradients' memory; no .grad() remains.
  void drop_gradients();

  /// Keeps low-precision copies of the masters in `compute`, writes them in every update, and
  /// refreshes them now if a master was modified elsewhere. FP32: no copies.
  void refresh_copies(at::ScalarType compute);
  /// Starts update number steps + 1 of every slot with a gradient, at group.lr * factor and with
  /// the clip of the verdict over gradients(); a no-op on the device if that found a non-finite
  /// value. Does not block the host. An absent gradient leaves weight, moments and t unchanged.
  void step(double factor, const ops::GradVerdict& verdict);
  /// Call it when read_stats() has reported whether the last step() was taken: its slots then count
  /// it. Moments in host memory may be read afterwards.
  void commit(bool taken);

  std::vector<Slot>& slots() { return slots_; }  // in the order of the trainables
  const std::vector<Slot>& slots() const { return slots_; }
  std::vector<ParamGroup>& groups() { return groups_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  const UpdateRule& rule() const { return *rule_; }

 private:
  RulePtr rule_;
  MomentStorage storage_;
  std::vector<ParamGroup> groups_;
  std::vector<Slot> slots_;
  std::vector<size_t> stepped_;  // slots of the last step(), until commit()
  FlatTensors gradients_, copies_;
  std::vector<int64_t> unwritten_;  // by slot: its gradient's version while absent
};

/// The base group, and groups "projector" and "vision" if their learning rates differ and they have
/// members. projector_lr and vision_lr < 0 mean lr. With a b_ratio other than 1 (LoRA+) every
/// lora_B is in a group "base B", "projector B" or "vision B", at b_ratio times the learning rate,
/// and its bias (lora_bias) in a group "base B bias" and so on at the same rate without weight
/// decay, as in PEFT's create_loraplus_optimizer.
std::vector<ParamGroup> param_groups(const std::vector<lora::Trainable>& trainables, double lr,
                                     double projector_lr, double b_ratio = 1,
                                     double vision_lr = -1);

}  // namespace lft::train
