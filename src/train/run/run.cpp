#include "src/train/run/run.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"
#include "models/ops/core/precision.h"
#include "src/base/log.h"
#include "src/data/batch.h"
#include "src/text/chat_template.h"
#include "src/train/machine/device.h"
#include "src/train/proof/first_loss.h"
#include "src/train/run/run_hash.h"
#include "src/train/run/saved_state.h"
#include "src/train/step/recovery.h"

namespace lft::train {
namespace {

/// Of a checkpoint's identity; known once the weights are read.
constexpr const char* kBaseDigest = "base, every byte";

[[noreturn]] void refuse_checkpoint(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& what, const std::string& found,
                                    const std::string& expected) {
  throw Error(ErrorKind::kCheckpoint,
              {.what = what,
               .where = "checkpoint of step " + std::to_string(checkpoint.step),
               .found = found,
               .expected = expected,
               .next = "train again into another output_dir"});
}

/// In evaluation mode, in the run's current precision.
double restored_probe_loss(Run& run) {
  const at::NoGradGuard no_grad;
  const ops::ComputeDtypeGuard dtype(run.state.compute);
  return run.model.model->loss_sum(probe_batch(run)).item<double>();
}

void copy_tensor(const checkpoint::Checkpoint& checkpoint,
                 const std::map<std::string, at::Tensor>& from, const std::string& name,
                 at::Tensor to) {
  const auto found = from.find(name);
  if (found == from.end())
    refuse_checkpoint(checkpoint, "the checkpoint lacks a tensor", name,
                      "every trainable tensor and its moments");
  if (found->second.sizes() != to.sizes()) {
    refuse_checkpoint(checkpoint, "a tensor of the checkpoint has another shape",
                      name + " " + c10::str(found->second.sizes()), c10::str(to.sizes()));
  }
  if (found->second.scalar_type() != to.scalar_type()) {
    refuse_checkpoint(checkpoint, "a tensor of the checkpoint has another type",
                      name + " " + c10::toString(found->second.scalar_type()),
                      c10::toString(to.scalar_type()));
  }
  const at::NoGradGuard no_grad;
  to.copy_(found->second);
}

void restore_state(Run& run, const SavedState& state) {
  run.state.step = state.step;
  run.state.scheduled = state.scheduled;
  run.state.skips_in_row = state.skips_in_row;
  run.state.compute = compute_type(state.precision);
  run.state.recovered = state.recovered;
  run.state.lr_factor = state.lr_factor;
  // The recipe's may have changed since; only a recovered run may have had to recompute more than
  // that.
  if (state.recovered && state.recompute == 1) run.state.recompute = 1;
  run.state.split = state.split;
  run.scaler = LossScaler(loss_scale_from(state.loss_scale));
  if (state.recovered) apply_recovered(run.state, run.optimizer, run.scaler);
  run.watch = AdapterWatch(state.adapters_learn);
  run.norms.restore(state.norm_watch);
  run.skipped_samples = state.skipped_samples;
  run.tokens = state.tokens;
  run.last_loss = bits_value(state.last_loss_bits);
  run.hash = state.run_hash;
}

SavedState saved_state(Run& run, uint64_t metrics_bytes) {
  SavedState saved{
      .step = run.state.step,
      .scheduled = run.state.scheduled,
      .skips_in_row = run.state.skips_in_row,
      .precision = compute_name(run.state.compute),
      .recovered = run.state.recovered,
      .lr_factor = run.state.lr_factor,
      .recompute = run.state.recompute,
      .split = run.state.split,
      .loss_scale = loss_scale_json(run.scaler.state()),
      .adam_steps = {},
      .adapters_learn = run.watch.satisfied(),
      .norm_watch = run.norms.state(),
      .sampler = {{"seed", run.inputs.recipe.train.seed}, {"next_step", run.state.step + 1}},
      .skipped_samples = run.skipped_samples,
      .tokens = run.tokens,
      .last_loss_bits = bits_text(run.last_loss),
      .run_hash = run.hash,
      .metrics_bytes = metrics_bytes,
      .probe_loss_bits = bits_text(restored_probe_loss(run))};
  for (const Slot& slot : run.optimizer.slots()) saved.adam_steps[slot.param.name] = slot.steps;
  return saved;
}

void compare_probe(Run& run, const checkpoint::Checkpoint& checkpoint,
                   const std::string& stored_bits, bool exact) {
  const double stored = bits_value(stored_bits), now = restored_probe_loss(run);
  if (bits_text(stored) == bits_text(now)) return;
  const double epsilon = run.state.compute == at::kFloat  ? 0x1p-12
                         : run.state.compute == at::kHalf ? 0x1p-7
                                                          : 0x1p-4;
  if (!exact && std::abs(stored - now) <= epsilon * std::max(1.0, std::abs(stored))) return;
  refuse_checkpoint(checkpoint, "restored state does not reproduce the probe loss",
                    io::Json(now).dump() + " (bits " + bits_text(now) + ")",
                    io::Json(stored).dump() + " (bits " + bits_text(stored) + "), as stored");
}

io::Json run_environment(RunInputs& inputs) {
  io::Json json = {
      {"lft", lft_version()}, {"torch", torch_version()}, {"threads", at::get_num_threads()}};
  if (const std::string& images = image_stamp(inputs.data); !images.empty())
    json["images by size and time"] = images;
  json.update(device_json(inputs.device));
  return json;
}

}  // namespace

Restart find_restart(RunInputs& inputs) {
  Restart restart;
  const std::string dir = inputs.recipe.output_dir + "/checkpoints";
  std::vector<std::string> warnings;
  restart.checkpoint = checkpoint::load_newest(dir, &warnings);
  for (const std::string& line : warnings) warning(line);
  if (!restart.checkpoint) {
    inputs.notices.push_back("no checkpoint yet in " + dir + ": starting from the beginning");
    return restart;
  }
  const checkpoint::Checkpoint& checkpoint = *restart.checkpoint;
  io::Json identity = run_identity(inputs);
  if (const auto digest = checkpoint.identity.find(kBaseDigest);
      digest != checkpoint.identity.end()) {
    identity[kBaseDigest] = *digest;  // restore() compares it
  }
  checkpoint::check_identity(checkpoint, identity, inputs.recipe);
  if (const auto threads = checkpoint.environment.find("threads");
      threads != checkpoint.environment.end() && threads->is_number_integer()) {
    at::set_num_threads(static_cast<int>(std::clamp<int64_t>(threads->get<int64_t>(), 1, 1024)));
  }
  const std::string changed = checkpoint::environment_warning(checkpoint, run_environment(inputs));
  restart.exact = changed.empty();
  if (!changed.empty()) inputs.notices.push_back(changed);
  inputs.notices.push_back("going on after step " + std::to_string(checkpoint.step) + " of run " +
                           checkpoint.run_id);
  return restart;
}

Run make_run(RunInputs inputs) {
  RunModel model = build_model(inputs);
  Optimizer optimizer = make_optimizer(inputs.recipe, model.trainables);
  const recipe::Recipe::Precision::LossScale& scale = inputs.recipe.precision.loss_scale;
  const LossScale initial{.enabled = inputs.precision.compute == at::kHalf,
                          .scale = scale.init,
                          .growth_factor = scale.growth_factor,
                          .backoff_factor = scale.backoff_factor,
                          .growth_interval = scale.growth_interval};
  const Schedule schedule = Schedule::make(inputs.recipe.optim.schedule,
                                           inputs.recipe.optim.warmup_ratio, inputs.total_steps);
  Probe probe = find_probe(inputs, model.trainables);
  Run run{.inputs = std::move(inputs),
          .model = std::move(model),
          .optimizer = std::move(optimizer),
          .scaler = LossScaler(initial),
          .schedule = schedule,
          .state = {},
          .id = checkpoint::new_run_id(),
          .watch = AdapterWatch(),
          .probe = std::move(probe),
          .skipped_samples = {}};
  run.state.compute = run.inputs.precision.compute;
  run.state.recompute = recompute_every(run.inputs.recipe.train.activation_checkpointing);
  return run;
}

llava::LlavaBatch probe_batch(const Run& run) {
  const auto& samples = run.probe.samples;
  const auto found = std::find_if(samples.begin(), samples.end(), [](const data::Sample& sample) {
    return sample.supervised() > 0;
  });
  return data::collate({*found}, run.inputs.data.encode, run.inputs.device);
}

std::string tell_first_loss(Run& run, const Proof& proof) {
  const recipe::Recipe& recipe = run.inputs.recipe;
  const FirstLoss first = measure_first_loss(run.model.model, run.probe, proof.probe_loss);
  require_bounded_gradients(proof);
  require_first_loss(first, recipe.log.expect_first_loss);
  if (recipe.model.init != "random" && proof.probe_finite) {
    for (const std::string& line : judge_first_loss(first, run.inputs.model.init_from.has_value()))
      warning(line);
  }
  return describe_first_loss(first);
}

io::Json run_identity(RunInputs& inputs) {
  io::Json identity = {{"base", hf::base_fingerprint(inputs.model.dir)},
                       {"data", inputs.data.train->hash()},
                       {"world_size", 1}};
  const data::EncodeOptions& encode = inputs.data.encode;
  identity["template"] = text::template_hash(encode.template_name);
  identity["end token"] = encode.eos;
  identity["image mean and std"] = io::Json({encode.image_mean, encode.image_std}).dump();
  if (const std::string& images = image_digest(inputs.data); !images.empty())
    identity["images"] = images;
  for (const auto& [part, hash] : encode.tokenizer_parts) identity["tokenizer: " + part] = hash;
  return identity;
}

checkpoint::Checkpoint snapshot(Run& run, uint64_t metrics_bytes) {
  checkpoint::Checkpoint checkpoint;
  checkpoint.step = run.state.step;
  checkpoint.run_id = run.id;
  for (const Slot& slot : run.optimizer.slots()) {
    checkpoint.trainables[slot.param.name] = slot.param.tensor.detach();
    for (const auto& [name, tensor] : moment_tensors(slot)) checkpoint.moments[name] = tensor;
  }
  checkpoint.state = state_json(saved_state(run, metrics_bytes));
  checkpoint.identity = run_identity(run.inputs);
  checkpoint.identity[kBaseDigest] = run.model.base_digest;
  checkpoint.environment = run_environment(run.inputs);
  checkpoint.recipe = recipe::dump_recipe(run.inputs.recipe);
  return checkpoint;
}

uint64_t restore(Run& run, const checkpoint::Checkpoint& checkpoint, bool exact,
                 const std::function<void(llava::Llava&)>& restored) {
  const size_t slots = run.optimizer.slots().size();
  size_t kept = 0;
  for (const Slot& slot : run.optimizer.slots()) kept += moment_tensors(slot).size();
  if (checkpoint.trainables.size() != slots || checkpoint.moments.size() != kept) {
    refuse_checkpoint(checkpoint, "the checkpoint holds other tensors than this recipe trains",
                      std::to_string(checkpoint.trainables.size()), std::to_string(slots));
  }
  try {
    if (const io::Json& digest = checkpoint.identity.at(kBaseDigest);
        digest != run.model.base_digest) {
      throw Error(ErrorKind::kCheckpoint,
                  {.what = "the base is not the one of the saved run: bytes of its weights differ",
                   .where = "checkpoint of step " + std::to_string(checkpoint.step) + ", " +
                            run.inputs.recipe.model.path,
                   .found = run.model.base_digest.substr(0, 16),
                   .expected = io::describe_json(digest).substr(0, 18),
                   .next = "put the weight files back that the run began with (compare their "
                           "sha256 with where they came from), or train in another output_dir"});
    }
    const SavedState state = state_from(checkpoint.state);
    for (Slot& slot : run.optimizer.slots()) {
      copy_tensor(checkpoint, checkpoint.trainables, slot.param.name, slot.param.tensor);
      for (const auto& [name, tensor] : moment_tensors(slot))
        copy_tensor(checkpoint, checkpoint.moments, name, tensor);
      const auto steps = state.adam_steps.find(slot.param.name);
      if (steps == state.adam_steps.end()) {
        refuse_checkpoint(checkpoint, "state.json of the checkpoint lacks a field",
                          "no adam_steps." + slot.param.name, "");
      }
      slot.steps = steps->second;
    }
    run.id = checkpoint.run_id;
    restore_state(run, state);
    if (restored) restored(run.model.model);
    compare_probe(run, checkpoint, state.probe_loss_bits, exact);
    if (run.state.recovered) {
      notice(
          "a step of this run was not finite: it computes in fp32 since, at its learning rates "
          "times " +
          io::Json(run.state.lr_factor).dump());
    }
    return state.metrics_bytes;
  } catch (const nlohmann::json::exception& error) {
    refuse_checkpoint(checkpoint, "state.json of the checkpoint lacks a field", error.what(), "");
  }
}

}  // namespace lft::train
