#include "src/train/run/outputs.h"

#include <cmath>

#include "src/base/text.h"
#include "src/checkpoint/writer.h"
#include "src/report/report.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/run/sample_answers.h"

namespace lft::train {
namespace {

std::string best_dir(const Run& run) { return run.inputs.recipe.output_dir + "/best"; }

}  // namespace

void save_outputs(Run& run) {
  const recipe::Recipe& recipe = run.inputs.recipe;
  const hf::AdapterNotes notes{.base_path = io::absolute_path(recipe.model.path),
                               .base_fingerprint = hf::base_fingerprint(run.inputs.model.dir),
                               .input = recorded_settings(recipe),
                               .tokenizer = run.inputs.data.encode.tokenizer_parts};
  const std::string product = product_of(recipe), path = recipe.output_dir + "/" + product;
  if (product == "model") {
    hf::save_model(path, run.model.model, run.inputs.model.dir, notes);
  } else if (product == "parts") {
    hf::save_parts(path, run.model.model, recipe.full, notes);
  } else {
    hf::save_adapter(path, run.model.model, run.model.lora, recipe.full, notes);
  }
}

void save_best(Run& run, uint64_t metrics_bytes) {
  checkpoint::CheckpointWriter writer(best_dir(run), /*keep=*/1, /*behind=*/false);
  writer.save(snapshot(run, metrics_bytes));
}

void take_best(Run& run) {
  const std::string path = best_dir(run) + "/step-" + std::to_string(run.best.step);
  const checkpoint::Checkpoint best = checkpoint::load_checkpoint(path);
  if (best.run_id != run.id) {
    refuse(ErrorKind::kCheckpoint, "the best evaluation's checkpoint is another run's", path,
           best.run_id, run.id, "train again into another output_dir");
  }
  copy_stored(best.trainables, named_targets(run.model.trainables), ErrorKind::kCheckpoint, path);
  run.optimizer.keep_shadows(run.state.compute);
}

void write_run_report(Run& run, const std::string& environment_json, const ReportFacts& facts) {
  const recipe::Recipe& recipe = run.inputs.recipe;
  report::ReportInput report{.title = recipe.output_dir,
                             .metrics_path = recipe.output_dir + "/metrics.jsonl",
                             .recipe_text = recipe::dump_recipe(recipe),
                             .environment_json = environment_json,
                             .facts = {},
                             .answers = {}};
  report.facts = {
      {"run", run.id},
      {"steps", std::to_string(run.state.step) + " of " + std::to_string(run.inputs.total_steps)},
      {"trainable parameters", with_commas(run.model.trainable_parameters)},
      {"precision",
       compute_name(run.state.compute) + (run.state.recovered ? " (after a recovery)" : "")},
      {"device", run.inputs.device.str()},
      {"time", format_number(facts.seconds, "%.1f s")},
      {"tokens", with_commas(run.tokens)}};
  if (std::isfinite(run.last_loss))
    report.facts.emplace_back("last loss", format_number(run.last_loss, "%.4f"));
  if (std::isfinite(facts.eval_loss))
    report.facts.emplace_back("eval loss", format_number(facts.eval_loss, "%.4f"));
  for (const auto& [name, value] : facts.figures)
    report.facts.emplace_back(name, format_number(value, "%.4f"));
  if (!facts.images.empty())
    report.facts.emplace_back("loss with own / other / grey image", facts.images);
  if (facts.with_answers) {
    SampleAnswers answers = sample_answers(run);
    report.answers = std::move(answers.shown);
    report.answers_of = answers.rows;
    if (answers.asked > 0) {
      report.facts.emplace_back(
          "answered exactly",
          with_commas(answers.right) + " of " + with_commas(answers.asked) + " " + answers.rows +
              (answers.asked < answers.all ? ", spread over " + with_commas(answers.all) : ""));
    }
  }
  report::write_report(recipe.output_dir + "/report.html", report);
}

}  // namespace lft::train
