#include "src/train/inputs/init_checkpoint.h"

#include <ATen/core/grad_mode.h>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/io/files.h"
#include "src/recipe/diff.h"

namespace lft::train {
namespace {

std::string step_text(const checkpoint::Checkpoint& checkpoint) {
  return "checkpoint of step " + std::to_string(checkpoint.step) + " of run " + checkpoint.run_id;
}

}  // namespace

bool is_checkpoint_folder(const std::string& path) {
  return io::path_exists(path + "/MANIFEST") && !io::path_exists(path + "/adapter_config.json");
}

checkpoint::Checkpoint open_init_checkpoint(const recipe::Recipe& recipe,
                                            const hf::ModelDir& base) {
  const std::string& path = recipe.lora.init_from;
  checkpoint::Checkpoint checkpoint = checkpoint::load_checkpoint(path);
  const recipe::Recipe stored = recipe::parse_recipe(checkpoint.recipe, path + "/recipe.yaml");
  std::vector<std::string> changed;
  for (const recipe::RecipeChange& change : recipe::changed_fields(stored, recipe)) {
    if (change.trains)
      changed.push_back(change.key + ": stored " + change.before + ", now " + change.after);
  }
  if (!changed.empty()) {
    refuse(ErrorKind::kInput, "the checkpoint's run trained something else than the recipe",
           "lora.init_from, " + step_text(checkpoint), join(changed, "\n"), {},
           "make these fields agree, or choose another lora.init_from");
  }
  const std::string now = hf::base_fingerprint(base);
  const io::Json then = checkpoint.identity.value("base", io::Json(now));
  if (then != now) {
    refuse(ErrorKind::kInput, "the checkpoint belongs to another base model",
           "lora.init_from, " + step_text(checkpoint), base.path + ", " + now.substr(0, 16),
           then.is_string() ? then.get<std::string>().substr(0, 16) : io::describe_json(then),
           "set model.path to the base of that run");
  }
  return checkpoint;
}

void copy_stored(const std::map<std::string, at::Tensor>& stored, const NamedTargets& into,
                 ErrorKind kind, const std::string& where) {
  const auto misfit = [&](const std::string& what, const std::string& found,
                          const std::string& expected) {
    refuse(kind, what, where, found, expected,
           "use the recipe and the model that it was written with");
  };
  if (stored.size() != into.size()) {
    misfit("it contains other tensors than the recipe trains", std::to_string(stored.size()),
           std::to_string(into.size()));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) {
    const auto found = stored.find(name);
    if (found == stored.end())
      misfit("a tensor that the recipe trains is not in it", "no " + name, {});
    if (found->second.sizes() != tensor.sizes()) {
      misfit("a tensor has another shape than the model's",
             name + " " + c10::str(found->second.sizes()), c10::str(tensor.sizes()));
    }
    at::Tensor(tensor).copy_(found->second);
  }
}

NamedTargets named_targets(const std::vector<lora::Trainable>& trainables) {
  NamedTargets targets;
  for (const lora::Trainable& trainable : trainables)
    targets.emplace_back(trainable.name, trainable.tensor);
  return targets;
}

void take_moments(const checkpoint::Checkpoint& checkpoint, Optimizer& optimizer) {
  NamedTargets targets;
  for (const Slot& slot : optimizer.slots()) {
    for (const auto& moment : moment_tensors(slot)) targets.push_back(moment);
  }
  copy_stored(checkpoint.moments, targets, ErrorKind::kInput,
              "optim.init_moments, " + step_text(checkpoint));
  try {
    const io::Json& steps = checkpoint.state.at("adam_steps");
    for (Slot& slot : optimizer.slots()) slot.steps = steps.at(slot.param.name).get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    refuse(ErrorKind::kInput, "state.json of the checkpoint lacks a field",
           "optim.init_moments, " + step_text(checkpoint), error.what(), "adam_steps",
           "choose another checkpoint, or set optim.init_moments to false");
  }
}

}  // namespace lft::train
