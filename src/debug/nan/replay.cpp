#include "src/debug/nan/replay.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/tensor_file.h"
#include "src/debug/nan/incident_file.h"
#include "src/debug/nan/nan_run.h"
#include "src/infer/evaluate.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/determinism.h"
#include "src/train/run/run.h"

namespace lft::debug {
namespace {

namespace fs = std::filesystem;

/// The incident's copy of the recipe. Its output_dir is not written to and need not exist.
recipe::Recipe read_recipe_copy(const std::string& dir, const Incident& incident) {
  const std::string path = dir + "/recipe.yaml";
  const std::string text = io::read_file(path);
  recipe::Recipe recipe;
  try {
    recipe = recipe::parse_recipe(text, path);
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, error.info());
  }
  const std::string whole =
      recipe::dump_recipe(recipe);  // fields that were removed have their defaults
  if (text.size() < whole.size() && whole.starts_with(text))
    damaged(path, "it ends early", "every field");
  if (static_cast<uint64_t>(recipe.train.seed) != incident.seed) {
    refuse_incident(incident.path, "recipe.yaml belongs to another run",
                    "generator.seed " + std::to_string(incident.seed),
                    "train.seed " + std::to_string(recipe.train.seed));
  }
  recipe.lora.init_from.clear();  // its trained state is in trainables.safetensors
  recipe.output_dir = dir + "/replay";
  return recipe;
}

/// A prompt and the beginning of its answer, with the next token supervised: the loss is not finite
/// if the logits after them are not.
data::Sample answered_so_far(const data::Sample& sample, data::Sample prompt,
                             const std::vector<int64_t>& answer) {
  data::Sample row = std::move(prompt);
  row.input_ids.insert(row.input_ids.end(), answer.begin(), answer.end());
  row.labels.assign(row.input_ids.size(), -100);
  row.labels.push_back(sample.input_ids.back());
  row.input_ids.push_back(sample.input_ids.back());
  return row;
}

/// The same rows, encoded again with the recipe's settings.
data::StepSamples read_samples(const Incident& incident, const data::Dataset& dataset,
                               const train::RunData& run, const std::string& data) {
  data::StepSamples samples;
  samples.epoch = incident.epoch;
  for (const Incident::Row& row : incident.rows) {
    const std::string expected = "sample " + row.id + " at index " + std::to_string(row.index) +
                                 " with " + std::to_string(row.tokens) + " tokens, " +
                                 std::to_string(row.supervised) + " supervised";
    if (row.index >= dataset.size()) {
      refuse_incident(data, "the data is not what the incident saw",
                      std::to_string(dataset.size()) + " rows", expected);
    }
    std::vector<data::Sample> sides = dataset.sides(row.index);
    const bool rejected = sides.size() == 2 && sides[1].id == row.id;
    data::Sample sample = std::move(sides[rejected ? 1 : 0]);
    if (sample.id != row.id || static_cast<int64_t>(sample.input_ids.size()) != row.tokens ||
        sample.supervised() != row.supervised) {
      refuse_incident(data, "the data is not what the incident saw",
                      "sample " + sample.id + " with " + std::to_string(sample.input_ids.size()) +
                          " tokens, " + std::to_string(sample.supervised()) + " supervised",
                      expected);
    }
    samples.micro.resize(row.micro + 1);
    samples.indices.resize(row.micro + 1);
    if (row.answering) {
      sample = answered_so_far(
          sample, infer::question_of(sample, dataset.row(row.index), *run.tokenizer, run.encode),
          row.answer);
    }
    sample.reference = row.reference;
    samples.micro[row.micro].push_back(std::move(sample));
    samples.indices[row.micro].push_back(row.index);
  }
  return samples;
}

/// The objective of the step, whose references the incident must have; supervised for the losses of
/// an evaluation.
void take_objective(const Incident& incident, const recipe::Recipe& recipe, HuntInput& input) {
  if (incident.evaluated > 0) return;
  input.objective = train::make_objective(recipe);
  input.kl = incident.kl;
  const auto lacking = std::ranges::find_if(
      incident.rows, [](const Incident::Row& row) { return std::isnan(row.reference); });
  if (input.objective->uses_reference() && lacking != incident.rows.end())
    damaged(incident.path, "sample " + lacking->id + " has no reference", "that of every sample");
}

/// Inputs of the step that have changed since; nothing is known for an older incident.
std::vector<std::string> changes_since(const Incident& incident, train::RunInputs& inputs,
                                       const train::RunModel& model) {
  if (incident.identity.is_null()) return {};
  return checkpoint::identity_changes(incident.identity,
                                      train::run_identity(inputs, model.base_digest));
}

}  // namespace

int replay(const std::string& incident_dir) {
  if (!io::is_directory(incident_dir))
    refuse_incident(incident_dir, "no such incident folder", {}, "<output_dir>/incidents/step-<n>");
  const std::string dir = io::absolute_path(incident_dir);
  if (!io::path_exists(dir + "/incident.json"))
    refuse_incident(dir + "/incident.json", "no incident is here", "no such file",
                    "one of the folders that a run writes where a step is not finite");
  const Incident incident = read_incident(dir);
  const recipe::Recipe recipe = read_recipe_copy(dir, incident);
  const std::string weights_file = dir + "/trainables.safetensors";
  const checkpoint::TensorMap weights = checkpoint::read_tensor_file(weights_file);
  train::make_deterministic(recipe.train.deterministic);
  train::RunInputs inputs = train::open_inputs(recipe, /*resume=*/true);
  for (const std::string& line : inputs.notices) notice(line);
  if (incident.evaluated > 0 && !inputs.data.eval)
    damaged(dir + "/recipe.yaml", "no data.eval", "the rows of the evaluation");
  const data::StepSamples samples =
      incident.evaluated > 0
          ? read_samples(incident, *inputs.data.eval, inputs.data, recipe.data.eval)
          : read_samples(incident, *inputs.data.train, inputs.data, recipe.data.train.text());
  train::RunModel model = train::build_model(inputs);
  train::copy_stored(weights, train::named_targets(model.trainables), ErrorKind::kInput,
                     weights_file);
  if (const std::string hash = sha256_file(weights_file);
      !incident.trainables_sha256.empty() && hash != incident.trainables_sha256)
    damaged(weights_file, "sha256 " + hash, incident.trainables_sha256);
  const std::vector<std::string> changed = changes_since(incident, inputs, model);
  for (const std::string& line : changed) warning("not what the incident saw: " + line);

  HuntInput input = hunt_input(inputs, model, samples, incident.step);
  input.compute = incident.compute;
  input.loss_scale = incident.loss_scale;
  input.evaluated = incident.evaluated;
  take_objective(incident, recipe, input);
  print_line("incident " + escape_text(dir));
  print_line((incident.evaluated > 0 ? "after    step " : "step     ") +
             std::to_string(incident.step) + " in " + train::compute_name(incident.compute) + ": " +
             escape_text(incident.reason) +
             (incident.evaluated > 0 ? "; rows of data.eval"
                                     : "; loss " + io::Json(incident.loss).dump() +
                                           ", loss scale " + io::Json(incident.loss_scale).dump()));
  return hunt_and_report(
      recipe, model.model, input,
      fs::path(dir).parent_path().parent_path().string() + "/metrics.jsonl",
      changed.empty()
          ? "the replay is finite: the bad value came from outside the batch "
            "and the weights at the step's start (memory, device, or a "
            "gradient changed after the backward pass)"
          : "the replay is finite over inputs that have changed since: " + join(changed, "; ") +
                ". What was there before may have been the cause");
}

}  // namespace lft::debug
