// A run that starts from what another run's checkpoint holds (lora.init_from names its folder): the
// weights, and the moments where the recipe asks for them.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/model_dir.h"
#include "src/recipe/recipe.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// Whether `path` is a step's folder of a run, not an adapter's.
bool is_checkpoint_folder(const std::string& path);

/// kCheckpoint where it does not verify; kInput where its run trained something else than the
/// recipe, or over another base.
checkpoint::Checkpoint open_init_checkpoint(const recipe::Recipe& recipe, const hf::ModelDir& base);

using NamedTargets = std::vector<std::pair<std::string, at::Tensor>>;
/// Copies stored values into the tensors of their names; `kind` error for one that is missing, is
/// too many or has another shape.
void copy_stored(const std::map<std::string, at::Tensor>& stored, const NamedTargets& into,
                 ErrorKind kind, const std::string& where);
NamedTargets named_targets(const std::vector<lora::Trainable>& trainables);

/// Moments and counts of updates of an optimizer over the checkpoint's trainables; kInput where it
/// was another optimizer.
void take_moments(const checkpoint::Checkpoint& checkpoint, Optimizer& optimizer);

}  // namespace lft::train
