// The interface of an optimizer rule: its moments for a parameter, and how a gradient changes both.
// Independent of groups, schedule, gradient memory and checkpoints.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "models/ops/update/adamw.h"
#include "src/train/optim/slot.h"

namespace lft::train {

/// A rule's settings from the recipe.
struct RuleOptions {
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;  // decoupled, for every tensor with weight decay
};

/// A NamedMoment to create: with the parameter's shape, or one dimension with a span above 1.
struct MomentSpec {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  int64_t span = 1;
};

/// One update of a slot, or of a piece of it. All tensors are on the weight's device.
struct Update {
  const Slot* slot = nullptr;
  at::Tensor param, grad;           // grad has the parameter's shape and is not yet clipped
  std::vector<at::Tensor> moments;  // in the slot's order
  double lr = 0;
  bool decays = true;        // weight_decay applies to it
  int64_t t = 1;             // number of this update, from 1
  ops::ParamCopy copy = {};  // the parameter's low-precision copy, see writes_copies()
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// The moments for a parameter of this shape.
  /// `embedding`: it is the table of an embedding.
  virtual std::vector<MomentSpec> moments(at::IntArrayRef sizes, bool embedding) const = 0;
  /// Updates parameters and moments with each gradient times the verdict's clip; a no-op on the
  /// device if the verdict found a non-finite value. Does not block the host.
  virtual void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const = 0;
  /// Approximately the last update at learning rate 1 without decay, for debugging.
  virtual at::Tensor direction(const Slot& slot) const = 0;
  /// Whether apply() also writes the copies. Otherwise they are refreshed after it.
  virtual bool writes_copies() const { return false; }
  /// Whether a tensor can be updated in pieces with the same result. Required for moments in host
  /// memory.
  virtual bool in_pieces() const { return true; }
  /// Temporary bytes that apply() needs for a parameter of this shape.
  virtual double temporary_bytes(at::IntArrayRef /*sizes*/) const { return 0; }
};
using RulePtr = std::unique_ptr<const UpdateRule>;

/// The shape of a moment of a parameter of `sizes`.
std::vector<int64_t> moment_sizes(const MomentSpec& moment, at::IntArrayRef sizes);
/// Bytes of all moments of a parameter of this shape.
double moment_bytes(const UpdateRule& rule, at::IntArrayRef sizes, bool embedding = false);

}  // namespace lft::train
