#include "src/train/run/run.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"
#include "models/objective/forward_loss.h"
#include "src/base/log.h"
#include "src/base/phase.h"
#include "src/base/sum_tree.h"
#include "src/data/batch.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/moved_end.h"
#include "src/train/machine/device.h"
#include "src/train/proof/adapter_reach.h"
#include "src/train/proof/first_loss.h"
#include "src/train/proof/first_loss_trials.h"
#include "src/train/record/saved_steps.h"
#include "src/train/run/shared_run.h"
#include "src/train/step/recovery.h"

namespace lft::train {

/// `compute` is saved by its name.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepState, step, scheduled, skips_in_row, recovered, lr_factor,
                                   recompute, split)

namespace {

/// Key in a checkpoint's identity; known once the weights are read.
constexpr const char* kBaseDigest = "base, every byte";
constexpr const char* kWorldSize = "world_size";

/// Describes a resumption with another number of processes.
std::string processes_line(int64_t before, int64_t now) {
  const bool same = is_power_of_two(before) && is_power_of_two(now);
  return "the checkpoint was saved by " + std::to_string(before) +
         (before == 1 ? " process, " : " processes, ") + std::to_string(now) +
         (now == 1 ? " continues: " : " continue: ") +
         (same ? "sums are added in the same order" : "sums are added in another order");
}

[[noreturn]] void refuse_checkpoint(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& what, const std::string& found,
                                    const std::string& expected) {
  refuse(ErrorKind::kCheckpoint, what, "checkpoint of step " + std::to_string(checkpoint.step),
         found, expected, "train again into another output_dir");
}

/// In evaluation mode, in the run's current precision.
double restored_probe_loss(Run& run) {
  const at::NoGradGuard no_grad;
  return objective::forward_loss({.compute = run.state.compute}, run.model.model, probe_batch(run))
      .item<double>();
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

/// The content of a checkpoint's state.json in addition to its tensors; restore_state() reads it.
io::Json saved_state(Run& run, uint64_t metrics_bytes) {
  io::Json saved = run.state;
  saved.update({{"precision", compute_name(run.state.compute)},
                {"loss_scale", loss_scale_json(run.scaler.state())},
                {"adam_steps", io::Json::object()},  // by trainable: its number of updates
                {"adapters_learn", run.watch.satisfied()},
                {"norm_watch", run.norms.state()},
                {"best_eval", best_json(run.best)},
                {"last_eval", last_eval_json(run.last_eval)},
                {"sampler", {{"seed", run.recipe.train.seed}, {"next_step", run.state.step + 1}}},
                {"skipped_samples", run.skipped_samples},
                {"tokens", run.tokens},
                {"last_loss_bits", bits_text(run.last_loss)},
                {"run_hash", run.hash},
                {"metrics_bytes", metrics_bytes},
                {"probe_loss_bits", bits_text(restored_probe_loss(run))}});
  for (const Slot& slot : run.optimizer.slots()) saved["adam_steps"][slot.param.name] = slot.steps;
  return saved;
}

/// Throws nlohmann's exception for a field that is missing or of another type.
void restore_state(Run& run, const io::Json& state) {
  const int64_t recompute = run.state.recompute;
  state.get_to(run.state);
  run.state.compute = compute_type(state.at("precision").get<std::string>());
  // The recipe's value may have changed; only a recovered run may have needed to recompute more
  // than that.
  if (!run.state.recovered || run.state.recompute != 1) run.state.recompute = recompute;
  run.scaler = LossScaler(loss_scale_from(state.at("loss_scale")));
  if (run.state.recovered) apply_recovered(run.state, run.optimizer, run.scaler);
  run.watch = AdapterWatch(state.at("adapters_learn").get<bool>());
  run.norms.restore(state.at("norm_watch"));
  run.best = best_from(state.at("best_eval"));
  run.last_eval = last_eval_from(state.at("last_eval"));
  state.at("sampler");  // also determined by the recipe and the step
  state.at("skipped_samples").get_to(run.skipped_samples);
  state.at("tokens").get_to(run.tokens);
  run.last_loss = bits_value(state.at("last_loss_bits").get<std::string>());
  state.at("run_hash").get_to(run.hash);
}

void compare_probe(Run& run, const checkpoint::Checkpoint& checkpoint,
                   const std::string& stored_bits, bool exact) {
  const double stored = bits_value(stored_bits), now = restored_probe_loss(run);
  if (bits_text(stored) == bits_text(now)) return;
  const double epsilon = run.state.compute == at::kFloat  ? 0x1p-12
                         : run.state.compute == at::kHalf ? 0x1p-7
                                                          : 0x1p-4;
  if (!exact && std::abs(stored - now) <= epsilon * std::max(1.0, std::abs(stored))) return;
  const bool recorded = checkpoint.identity.contains(kBaseDigest);
  refuse_checkpoint(checkpoint, "restored state does not reproduce the probe loss",
                    io::Json(now).dump() + " (bits " + bits_text(now) + "), " +
                        (recorded ? "though base, processor, tokenizer, data and trained weights "
                                    "have the bytes of the saved run: the arithmetic is another"
                                  : "where every byte of the base could not be compared"),
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

Restart find_restart(RunInputs& inputs, dist::Ranks& ranks) {
  const Phase phase("reading the checkpoint", 0, "after the checkpoint is read");
  Restart restart;
  const std::string dir = inputs.recipe.output_dir + "/checkpoints";
  std::vector<std::string> warnings;
  if (ranks.first()) restart.checkpoint = checkpoint::load_newest(dir, &warnings);
  for (const std::string& line : warnings) warning(line);
  share_checkpoint(ranks, restart.checkpoint);
  if (!restart.checkpoint) {
    inputs.notices.push_back("no checkpoint yet in " + dir + ": starting from the beginning");
    return restart;
  }
  const checkpoint::Checkpoint& checkpoint = *restart.checkpoint;
  // The base's digest is known after its weights are read: restore() compares it.
  const io::Json digest = checkpoint.identity.value(kBaseDigest, io::Json("unknown"));
  io::Json identity =
      run_identity(inputs, digest.is_string() ? digest.get<std::string>() : digest.dump());
  const int64_t saved_by = checkpoint.identity.value(kWorldSize, int64_t{1});
  identity[kWorldSize] = saved_by;
  checkpoint::check_identity(checkpoint, identity, inputs.recipe);
  if (ranks.first()) require_best(inputs.recipe, checkpoint);
  if (saved_by != inputs.ranks) inputs.notices.push_back(processes_line(saved_by, inputs.ranks));
  if (const auto threads = checkpoint.environment.find("threads");
      threads != checkpoint.environment.end() && threads->is_number_integer()) {
    at::set_num_threads(static_cast<int>(std::clamp<int64_t>(threads->get<int64_t>(), 1, 1024)));
  }
  const std::string changed = checkpoint::environment_warning(checkpoint, run_environment(inputs));
  restart.exact = changed.empty();
  if (!changed.empty()) inputs.notices.push_back(changed);
  inputs.notices.push_back("resuming after step " + std::to_string(checkpoint.step) + " of run " +
                           checkpoint.run_id);
  if (const std::string line = describe_moved_end(inputs, checkpoint); !line.empty())
    inputs.notices.push_back(line);
  return restart;
}

Run make_run(RunInputs inputs) {
  RunModel model = build_model(inputs);
  Optimizer optimizer = make_optimizer(inputs.recipe, model.trainables);
  if (inputs.recipe.optim.init_moments && inputs.files.init_checkpoint)
    take_moments(*inputs.files.init_checkpoint, optimizer);
  inputs.files.init_checkpoint.reset();
  const recipe::Recipe::Precision::LossScale& scale = inputs.recipe.precision.loss_scale;
  const LossScale initial{.enabled = inputs.precision.compute == at::kHalf,
                          .scale = scale.init,
                          .growth_factor = scale.growth_factor,
                          .backoff_factor = scale.backoff_factor,
                          .growth_interval = scale.growth_interval};
  const Schedule schedule = Schedule::make(inputs.recipe.optim, inputs.total_steps);
  Probe probe = find_probe(inputs, model.trainables);
  Run run{std::move(inputs), std::move(model), std::move(optimizer), LossScaler(initial), schedule};
  run.id = checkpoint::new_run_id();
  run.probe = std::move(probe);
  run.state.compute = run.precision.compute;
  run.state.recompute = recompute_every(run.recipe.train.activation_checkpointing);
  return run;
}

family::Batch probe_batch(const Run& run) {
  const auto found = std::ranges::find_if(
      run.probe.samples, [](const data::Sample& sample) { return sample.supervised() > 0; });
  return data::collate({*found}, run.data.encode, run.device);
}

std::string describe_model_start(Run& run, const TrainabilityReport& proof) {
  const recipe::Recipe& recipe = run.recipe;
  const FirstLoss first = measure_first_loss(run.model.model, run.probe, proof.probe_loss);
  require_bounded_gradients(proof);
  require_first_loss(first, recipe.log.expect_first_loss);
  if (recipe.model.init != recipe::ModelInit::kRandom && proof.probe_finite) {
    const std::vector<std::string> tried =
        first.above_guessing() ? try_suspects(run.model.model, run.probe, run, first)
                               : std::vector<std::string>();
    for (const std::string& line : judge_first_loss(first, tried)) warning(line);
  }
  if (const std::string line =
          judge_reach(run.model.model, recipe, run.total_steps, run.precision.compute);
      !line.empty()) {
    warning(line);
  }
  return describe_first_loss(first);
}

void refuse_non_finite_start(const Run& run, const TrainabilityReport& proof) {
  if (std::isfinite(proof.probe_loss) || can_recover(run.state, run.recipe.precision.recovery))
    return;
  refuse(ErrorKind::kNumeric,
         "the loss before training is not finite: the run would stop at its first step",
         run.recipe.model.path, "computed in " + proof.compute, "a finite loss",
         "lft debug base looks for weights that are not finite; precision.compute: fp32 shows "
         "whether the number format is the cause");
}

io::Json run_identity(RunInputs& inputs, const std::string& base_digest) {
  io::Json identity = {{"base", hf::base_fingerprint(inputs.files.dir)},
                       {kBaseDigest, base_digest},
                       {"data", data_hash(inputs.data)},
                       {kWorldSize, 1}};
  io::Json taken = io::Json::array();
  bool weighted = false;
  for (const data::SourceShare& share : inputs.sources) {
    taken.push_back(share.taken);
    weighted |= share.taken != share.rows;
  }
  if (weighted) identity["rows of each source in an epoch"] = taken.dump();
  const data::EncodeOptions& encode = inputs.data.encode;
  identity["template"] = encode.chat->hash();
  identity["end token"] = encode.eos;
  identity["image mean and std"] = io::Json({encode.images->mean, encode.images->std}).dump();
  if (const std::string& images = image_digest(inputs.data); !images.empty())
    identity["images"] = images;
  const HeldOutIdentity& held_out = held_out_identity(inputs.data);
  if (!held_out.rows.empty()) identity["held-out data"] = held_out.rows;
  if (!held_out.images.empty()) identity["held-out images"] = held_out.images;
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
  checkpoint.state = saved_state(run, metrics_bytes);
  checkpoint.identity = run_identity(run, run.model.base_digest);
  checkpoint.identity[kWorldSize] = run.ranks;
  checkpoint.environment = run_environment(run);
  checkpoint.recipe = recipe::dump_recipe(run.recipe);
  return checkpoint;
}

uint64_t restore(Run& run, const checkpoint::Checkpoint& checkpoint, bool exact,
                 const std::function<void(family::Model&)>& restored) {
  const size_t slots = run.optimizer.slots().size();
  size_t kept = 0;
  for (const Slot& slot : run.optimizer.slots()) kept += moment_tensors(slot).size();
  if (checkpoint.trainables.size() != slots || checkpoint.moments.size() != kept) {
    refuse_checkpoint(checkpoint, "the checkpoint contains other tensors than this recipe trains",
                      std::to_string(checkpoint.trainables.size()), std::to_string(slots));
  }
  try {
    if (const std::string digest = checkpoint.identity.value(kBaseDigest, run.model.base_digest);
        digest != run.model.base_digest) {
      refuse(ErrorKind::kCheckpoint,
             "the base is not the one of the saved run: bytes of its weights differ",
             "checkpoint of step " + std::to_string(checkpoint.step) + ", " + run.recipe.model.path,
             run.model.base_digest.substr(0, 16), digest.substr(0, 16),
             "put the weight files back that the run began with (compare their sha256 with where "
             "they came from), or train in another output_dir");
    }
    const io::Json& state = checkpoint.state;
    const auto steps = state.at("adam_steps").get<std::map<std::string, int64_t>>();
    restore_state(run, state);
    for (Slot& slot : run.optimizer.slots()) {
      copy_tensor(checkpoint, checkpoint.trainables, slot.param.name, slot.param.tensor);
      for (const auto& [name, tensor] : moment_tensors(slot))
        copy_tensor(checkpoint, checkpoint.moments, name, tensor);
      const auto found = steps.find(slot.param.name);
      if (found == steps.end()) {
        refuse_checkpoint(checkpoint, "state.json of the checkpoint lacks a field",
                          "no adam_steps." + slot.param.name, "");
      }
      slot.steps = found->second;
    }
    run.id = checkpoint.run_id;
    if (restored) restored(run.model.model);
    compare_probe(run, checkpoint, state.at("probe_loss_bits").get<std::string>(), exact);
    if (run.state.recovered) {
      notice(
          "a step of this run was not finite: it computes in fp32 since, at its learning rates "
          "times " +
          io::Json(run.state.lr_factor).dump());
    }
    return state.at("metrics_bytes").get<uint64_t>();
  } catch (const nlohmann::json::exception& error) {
    refuse_checkpoint(checkpoint, "state.json of the checkpoint lacks a field", error.what(), "");
  }
}

}  // namespace lft::train
