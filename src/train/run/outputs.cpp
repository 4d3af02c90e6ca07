#include "src/train/run/outputs.h"

#include <cmath>

#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_model.h"
#include "src/hf/adapter/adapter_parts.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/model_dir_fingerprint.h"
#include "src/io/files.h"
#include "src/report/report.h"
#include "src/text/chat/named_form.h"
#include "src/text/chat/template_files.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/record/saved_steps.h"
#include "src/train/run/sample_answers.h"

namespace lft::train {
void save_outputs(Run& run) {
  const Phase phase("saving the trained weights", 0, "after the weights are saved");
  const recipe::Recipe& recipe = run.inputs.recipe;
  const data::EncodeOptions& encode = run.inputs.data.encode;
  hf::AdapterNotes notes{.base_path = io::absolute_path(recipe.model.path),
                         .base_fingerprint = hf::base_fingerprint(run.inputs.model.dir),
                         .input = recorded_settings(recipe),
                         .chat_template = encode.chat->jinja(),
                         .tokenizer = encode.tokenizer_parts};
  if (text::is_named_form(encode.chat->name()))
    notes.input.template_args.clear();
  else
    notes.input.template_name = hf::kChatTemplate;
  if (!text::uses_date(notes.chat_template)) notes.input.template_date.clear();
  const std::string product = product_of(recipe), path = recipe.output_dir + "/" + product;
  if (product == "model") {
    hf::save_model(path, run.model.model, run.inputs.model.dir, notes);
  } else if (product == "parts") {
    hf::save_parts(path, run.model.model, recipe.full, notes);
  } else {
    hf::save_adapter(path, run.model.model, run.model.lora, recipe.full, notes);
  }
}

void take_best(Run& run) {
  const checkpoint::Checkpoint best = load_best(run.inputs.recipe, run.best.step, run.id);
  copy_stored(best.trainables, named_targets(run.model.trainables), ErrorKind::kCheckpoint,
              run.inputs.recipe.output_dir + "/best");
  run.optimizer.refresh_copies(run.state.compute);
}

bool write_run_report(Run& run, const std::string& environment_json, const ReportFacts& facts) {
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
  if (const std::string line = judge_global_batch(run.inputs); !line.empty())
    report.facts.emplace_back(
        "samples a step", std::to_string(recipe.train.batch_size * recipe.train.grad_accum) +
                              " (train.global_batch: " + std::to_string(recipe.train.global_batch) +
                              ")");
  if (std::isfinite(run.last_loss))
    report.facts.emplace_back("last loss", format_number(run.last_loss, "%.4f"));
  if (std::isfinite(facts.eval_loss))
    report.facts.emplace_back("eval loss", format_number(facts.eval_loss, "%.4f"));
  for (const auto& [name, value] : facts.figures)
    report.facts.emplace_back(name, format_number(value, "%.4f"));
  if (!facts.images.empty())
    report.facts.emplace_back("loss with own / other / grey image", facts.images);
  const bool answered = facts.with_answers && requested_signal() == 0;
  SampleAnswers answers;
  if (answered) answers = sample_answers(run);
  const bool whole = !facts.with_answers || (answered && !answers.stopped);
  if (answered && whole) {
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
  return whole;
}

}  // namespace lft::train
