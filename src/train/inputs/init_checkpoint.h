// Starts a run from another run's checkpoint (lora.init_from is its folder): its weights, and the
// moments if the recipe asks for them.
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

/// Whether `path` is a checkpoint folder of a run, not an adapter.
bool is_checkpoint_folder(const std::string& path);

/// kCheckpoint if it does not verify; kInput if its run trained other parameters than the recipe,
/// or used another base model.
checkpoint::Checkpoint open_init_checkpoint(const recipe::Recipe& recipe, const hf::ModelDir& base);

using NamedTargets = std::vector<std::pair<std::string, at::Tensor>>;
/// Copies stored values into the tensors of the same names; `kind` error for one that is missing,
/// unexpected or has another shape.
void copy_stored(const std::map<std::string, at::Tensor>& stored, const NamedTargets& into,
                 ErrorKind kind, const std::string& where);
NamedTargets named_targets(const std::vector<lora::Trainable>& trainables);

/// Copies the optimizer's moments and update counts over the checkpoint's trainables; kInput if the
/// optimizer was another one.
void take_moments(const checkpoint::Checkpoint& checkpoint, Optimizer& optimizer);

}  // namespace lft::train
