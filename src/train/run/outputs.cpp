#include "src/train/run/outputs.h"

#include <cmath>

#include "src/base/text.h"
#include "src/infer/evaluate.h"
#include "src/report/html.h"
#include "src/report/report.h"

namespace lft::train {
namespace {

constexpr int64_t kReportAnswers = 8;

std::vector<report::ReportAnswer> sample_answers(Run& run) {
  const data::Dataset& dataset =
      run.inputs.data.eval ? *run.inputs.data.eval : *run.inputs.data.train;
  const infer::EvalOptions options{.batch_size = kReportAnswers,
                                   .workers = 1,
                                   .max_tokens = run.inputs.recipe.train.max_tokens_per_step,
                                   .max_new_tokens = 64,
                                   .limit = kReportAnswers,
                                   .loss = false};
  const infer::EvalResult result =
      infer::evaluate(run.model.model, dataset, *run.inputs.data.tokenizer, run.inputs.data.encode,
                      options, run.state.compute);
  std::vector<report::ReportAnswer> answers;
  for (const infer::EvalRecord& record : result.records) {
    if (!record.answered) continue;
    report::ReportAnswer answer{.id = record.id,
                                .question = record.question,
                                .reference = record.reference,
                                .answer = record.answer,
                                .image_png = {}};
    const std::vector<std::string> images = dataset.image_paths(record.index);
    if (!images.empty()) answer.image_png = report::read_image(images.front());
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace

void save_outputs(Run& run) {
  const recipe::Recipe& recipe = run.inputs.recipe;
  const hf::AdapterNotes notes{.base_path = recipe.model.path,
                               .base_fingerprint = hf::base_fingerprint(run.inputs.model.dir),
                               .template_name = recipe.data.chat_template,
                               .image_fit = recipe.data.image_fit,
                               .tokenizer = run.inputs.data.encode.tokenizer_parts};
  for (const std::string& scope : recipe.full) {
    if (scope == "all")
      return hf::save_model(recipe.output_dir + "/model", run.model.model, run.inputs.model.dir,
                            notes);
  }
  hf::save_adapter(recipe.output_dir + "/adapter", run.model.model, run.model.lora, recipe.full,
                   notes);
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
      {"trainable parameters", std::to_string(run.model.trainable_parameters)},
      {"precision",
       compute_name(run.state.compute) + (run.state.recovered ? " (after a recovery)" : "")},
      {"device", run.inputs.device.str()},
      {"time", format_number(facts.seconds, "%.1f s")},
      {"tokens", std::to_string(run.tokens)}};
  if (std::isfinite(run.last_loss))
    report.facts.emplace_back("last loss", format_number(run.last_loss, "%.4f"));
  if (std::isfinite(facts.eval_loss))
    report.facts.emplace_back("eval loss", format_number(facts.eval_loss, "%.4f"));
  if (!facts.images.empty())
    report.facts.emplace_back("loss with own / other / grey image", facts.images);
  if (facts.with_answers) report.answers = sample_answers(run);
  report::write_report(recipe.output_dir + "/report.html", report);
}

}  // namespace lft::train
