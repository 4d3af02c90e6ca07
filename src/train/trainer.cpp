#include "src/train/trainer.h"

#include <ATen/Context.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "models/ops/precision.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/io/files.h"
#include "src/report/metrics.h"
#include "src/report/progress.h"
#include "src/report/report.h"
#include "src/report/tensorboard.h"
#include "src/train/device.h"
#include "src/train/evaluate.h"
#include "src/train/setup.h"
#include "src/train/step.h"

namespace lft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kReportAnswers = 8;
constexpr uint64_t kReportImageBytes = 2u << 20;  // larger files are left out of report.html

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The files of the run that are written while it goes on.
struct RunFiles {
  explicit RunFiles(const Recipe& recipe, int64_t total_steps)
      : metrics(recipe.output_dir + "/metrics.jsonl", /*truncate=*/true), progress(total_steps, /*first_step=*/0, recipe.log.every_steps) {
    if (recipe.log.tensorboard) tensorboard = std::make_unique<TensorBoardWriter>(recipe.output_dir + "/tensorboard");
  }
  MetricsFile metrics;
  std::unique_ptr<TensorBoardWriter> tensorboard;
  Progress progress;
};

class Run {
 public:
  explicit Run(const Recipe& recipe)
      : recipe_(recipe),
        inputs_(open_inputs(recipe)),
        model_(build_model(inputs_, &inputs_.notices)),
        optimizer_(make_optimizer(recipe, model_.trainables)),
        schedule_(Schedule::make(recipe.optim.schedule, recipe.optim.warmup_ratio, inputs_.total_steps)) {
    state_.compute = inputs_.precision.compute;
  }

  int run() {
    for (const std::string& line : inputs_.notices) notice(line);
    for (const std::string& line : describe_plan(inputs_, model_)) std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
    start_files();
    loop();
    const int signal = requested_signal();
    save_products();
    if (signal == 0) evaluate_loss();
    write_run_report(signal == 0);
    if (signal != 0) {
      notice("stopped by a signal behind step " + std::to_string(state_.step) + "; saved to " + recipe_.output_dir);
      return stop_exit_code(signal);
    }
    std::printf("done       %lld steps in %.1f s; see %s/report.html\n", static_cast<long long>(state_.step), seconds_since(start_),
                recipe_.output_dir.c_str());
    return 0;
  }

 private:
  void start_files() {
    make_dirs(recipe_.output_dir);
    write_file_atomic(path("recipe.resolved.yaml"), dump_recipe(recipe_));
    environment_ = environment_json(inputs_.device, recipe_.train.deterministic).dump(2) + "\n";
    write_file_atomic(path("environment.json"), environment_);
    files_ = std::make_unique<RunFiles>(recipe_, inputs_.total_steps);
  }

  void loop() {
    const StepOptions options{.encode = inputs_.encode,
                              .device = inputs_.device,
                              .clip_grad_norm = recipe_.optim.clip_grad_norm,
                              .seed = static_cast<uint64_t>(recipe_.train.seed)};
    start_ = Clock::now();
    Clock::time_point previous = start_;
    while (state_.step < inputs_.total_steps && requested_signal() == 0) {
      const StepSamples samples = inputs_.loader->next();
      for (const std::string& skipped : samples.skipped) {
        files_->progress.note("skipped a bad sample: " + skipped);
        files_->metrics.event("sample_skipped", state_.step + 1, {{"sample", skipped}});
      }
      const StepOutcome outcome = train_step(model_.model, optimizer_, schedule_, options, samples, state_);
      const Clock::time_point now = Clock::now();
      record(outcome, std::chrono::duration<double>(now - previous).count());
      previous = now;
      const int64_t every = recipe_.train.eval_every_steps;
      if (every > 0 && state_.step % every == 0 && state_.step < inputs_.total_steps) evaluate_loss();
    }
  }

  void record(const StepOutcome& outcome, double step_s) {
    if (outcome.skipped) {
      files_->metrics.event("step_skipped", state_.step, {{"reason", "no supervised token"}, {"tokens", outcome.tokens}});
      files_->progress.note("step " + std::to_string(state_.step) + " skipped: no supervised token in its global batch");
      return;
    }
    StepMetrics metrics{.step = state_.step,
                        .loss = outcome.loss,
                        .lr = outcome.lr,
                        .grad_norm = outcome.grad_norm,
                        .precision = compute_name(state_.compute),
                        .supervised_tokens = outcome.supervised,
                        .tokens = outcome.tokens,
                        .tokens_per_s = static_cast<double>(outcome.tokens) / step_s,
                        .step_s = step_s};
    last_loss_ = outcome.loss;
    tokens_ += outcome.tokens;
    files_->metrics.step(metrics);
    write_scalars(metrics);
    const int64_t every = recipe_.log.layer_grad_norms_every;
    if (files_->tensorboard && every > 0 && state_.step % every == 0) {
      for (size_t i = 0; i < outcome.grad_norms.size(); ++i) {
        files_->tensorboard->scalar("grad_norm/" + optimizer_.slots()[i].param.name, state_.step, outcome.grad_norms[i]);
      }
    }
    files_->progress.update(metrics);
  }

  void write_scalars(const StepMetrics& metrics) {
    if (!files_->tensorboard) return;
    files_->tensorboard->scalar("train/loss", metrics.step, metrics.loss);
    files_->tensorboard->scalar("train/lr", metrics.step, metrics.lr);
    files_->tensorboard->scalar("train/grad_norm", metrics.step, metrics.grad_norm);
    files_->tensorboard->scalar("train/tokens_per_s", metrics.step, metrics.tokens_per_s);
  }

  void evaluate_loss() {
    if (!inputs_.eval) return;
    const EvalOptions options{.batch_size = recipe_.train.batch_size, .workers = recipe_.data.workers, .answers = false};
    const EvalResult result = evaluate(model_.model, *inputs_.eval, *inputs_.tokenizer, inputs_.encode, options, state_.compute);
    if (result.stopped) return;
    eval_loss_ = result.loss;
    files_->metrics.event("eval", state_.step, {{"eval_loss", result.loss}, {"samples", result.samples}});
    if (files_->tensorboard) files_->tensorboard->scalar("eval/loss", state_.step, result.loss);
    char line[96];
    std::snprintf(line, sizeof line, "step %lld: eval loss %.4f on %lld samples", static_cast<long long>(state_.step), result.loss,
                  static_cast<long long>(result.samples));
    files_->progress.note(line);
  }

  /// What a user takes away: the adapter, or the whole model where all of it was trained.
  void save_products() {
    for (const std::string& scope : recipe_.full) {
      if (scope == "all") return save_model(path("model"), model_.model, inputs_.model_dir);
    }
    save_adapter(path("adapter"), model_.model, model_.lora, recipe_.full,
                 {.base_path = recipe_.model.path,
                  .base_fingerprint = base_fingerprint(inputs_.model_dir),
                  .template_name = recipe_.data.chat_template,
                  .image_fit = recipe_.data.image_fit});
  }

  std::vector<ReportAnswer> sample_answers() {
    const Dataset& dataset = inputs_.eval ? *inputs_.eval : *inputs_.train;
    const EvalOptions options{.batch_size = kReportAnswers, .workers = 1, .max_new_tokens = 64, .limit = kReportAnswers, .loss = false};
    const EvalResult result = evaluate(model_.model, dataset, *inputs_.tokenizer, inputs_.encode, options, state_.compute);
    std::vector<ReportAnswer> answers;
    for (const EvalRecord& record : result.records) {
      ReportAnswer answer{
          .id = record.id, .question = record.question, .reference = record.reference, .answer = record.answer, .image_png = {}};
      const std::vector<std::string> images = dataset.image_paths(record.index);
      if (!images.empty()) answer.image_png = report_image(images.front());
      answers.push_back(std::move(answer));
    }
    return answers;
  }

  /// The file as it is where a browser shows it.
  static std::string report_image(const std::string& file) {
    if (!path_exists(file)) return "";
    std::string bytes = read_file(file);
    const bool shown = bytes.rfind("\x89PNG", 0) == 0 || bytes.rfind("\xff\xd8\xff", 0) == 0;
    return shown && bytes.size() <= kReportImageBytes ? bytes : "";
  }

  void write_run_report(bool with_answers) {
    if (files_->tensorboard) files_->tensorboard->flush();
    const auto number = [](double value, const char* format) {
      char text[32];
      std::snprintf(text, sizeof text, format, value);
      return std::string(text);
    };
    ReportInput report{.title = recipe_.output_dir,
                       .metrics_path = path("metrics.jsonl"),
                       .recipe_text = dump_recipe(recipe_),
                       .environment_json = environment_,
                       .facts = {},
                       .answers = {}};
    report.facts = {{"steps", std::to_string(state_.step) + " of " + std::to_string(inputs_.total_steps)},
                    {"trainable parameters", std::to_string(model_.trainable_parameters)},
                    {"precision", compute_name(state_.compute)},
                    {"device", inputs_.device.str()},
                    {"time", number(seconds_since(start_), "%.1f s")},
                    {"tokens", std::to_string(tokens_)}};
    if (std::isfinite(last_loss_)) report.facts.emplace_back("last loss", number(last_loss_, "%.4f"));
    if (std::isfinite(eval_loss_)) report.facts.emplace_back("eval loss", number(eval_loss_, "%.4f"));
    if (with_answers) report.answers = sample_answers();
    write_report(path("report.html"), report);
  }

  std::string path(const std::string& name) const { return recipe_.output_dir + "/" + name; }

  const Recipe recipe_;
  RunInputs inputs_;
  RunModel model_;
  AdamW optimizer_;
  Schedule schedule_;
  StepState state_;
  std::unique_ptr<RunFiles> files_;
  std::string environment_;
  Clock::time_point start_;
  double last_loss_ = NAN, eval_loss_ = NAN;
  int64_t tokens_ = 0;
};

void make_deterministic(bool deterministic) {
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // a debugging aid that fills every new tensor
}

}  // namespace

int train(const Recipe& recipe) {
  make_deterministic(recipe.train.deterministic);
  return Run(recipe).run();
}

}  // namespace lft
