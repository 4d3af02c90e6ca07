#include "src/debug/isolate/bare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "kernels/common/error.h"
#include "models/lora/trained_modules.h"
#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/debug/isolate/forward_faults.h"
#include "src/debug/isolate/odd_settings.h"
#include "src/io/files.h"
#include "src/recipe/roles.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "src/train/run/trainer.h"

namespace lft::debug {
namespace {

constexpr size_t kJudgedSamples = 16;
constexpr double kCoreFall = 1e-3;  // of the initial loss: less does not count as a fall
constexpr double kPartFall = 0.1;   // of the core's fall
constexpr double kSlower = 0.8;     // of the fall without an odd setting: reported below this
constexpr size_t kNamedModules = 5;
constexpr char kWhole[] = "lft train", kLrPart[] = "learning rate";

using recipe::Recipe;

/// The recipe without its parts.
Recipe core_recipe(Recipe recipe, int64_t steps) {
  for (const OddSetting& odd : odd_settings(recipe)) odd.fix(recipe);
  recipe.output_dir += "/debug-bare";
  recipe.data.eval.clear();
  recipe::strip_to_core(recipe);
  recipe.train.max_steps = steps;
  return recipe;
}

/// Trials of one recipe, each with a new model.
class BareTrials {
 public:
  BareTrials(train::RunInputs inputs, const BareOptions& options)
      : inputs_(std::move(inputs)), options_(options) {}

  /// `least_fall`: of the loss.
  void run(const Recipe& recipe, BareTrial& trial, double least_fall) {
    inputs_.recipe = recipe;
    inputs_.precision =
        train::choose_precision(recipe.precision.compute, train::device_facts(inputs_.device));
    train::Run run = train::make_run(std::move(inputs_));
    run.objective = train::make_objective({});  // of pairs both answers are learned
    try {
      judge(run, trial, least_fall);
    } catch (const std::exception& error) {
      if (!train::is_out_of_memory(error)) throw;
      trial.fault = "out of memory";
    }
    inputs_ = std::move(run.inputs());
  }

 private:
  void judge(train::Run& run, BareTrial& trial, double least_fall) {
    if (options_.hooks.built) options_.hooks.built(run);
    const std::vector<data::Sample> judged = first_samples(run);
    data::StepSamples samples;
    samples.micro = {judged};
    std::optional<ForwardFault> fault = find_harmful_adapter(run, samples);
    train_and_judge(run, judged, trial, least_fall);
    if (fault && trial.fault.empty())
      trial.fault = "its initial loss is above the uniform-guess loss";
    if (trial.fault.empty() || requested_signal() != 0) return;
    if (!fault) fault = find_not_finite(run, samples);
    if (!fault && trial.after == trial.before) fault = find_dead_output(run, samples);
    trial.cause = std::move(fault);
  }

  void train_and_judge(train::Run& run, const std::vector<data::Sample>& judged, BareTrial& trial,
                       double least_fall) {
    trial.before = trial_loss(run, judged);
    TrialRun bench(run);
    const std::unique_ptr<data::Loader> loader = train::start_loader(run, 0);
    bool images = false;
    const auto next = [&] {
      data::StepSamples samples = loader->next();
      for (const std::vector<data::Sample>& micro : samples.micro) {
        for (const data::Sample& sample : micro) images |= !sample.images.empty();
      }
      return samples;
    };
    const TrialSteps steps = bench.take(options_.steps, step_options(run, options_.hooks), next);
    if (requested_signal() != 0) return;
    trial.fault = steps.stopped;
    if (trial.fault.empty() && steps.taken() == 0)
      trial.fault = "no step was taken: " + steps.outcomes.back().reason;
    if (!trial.fault.empty()) return;
    trial.after = trial_loss(run, judged);
    trial.fault = loss_fault(trial, least_fall);
    const std::vector<std::string> still = unmoved(run, bench, images);
    if (still.empty()) return;
    if (!trial.fault.empty()) trial.fault += "; ";
    trial.fault += std::to_string(still.size()) + " of " +
                   std::to_string(lora::trained_modules(run.model.trainables).size()) +
                   " trained modules did not move: " + join(still, ", ", kNamedModules);
  }

  /// The first samples in training order with supervised tokens.
  std::vector<data::Sample> first_samples(const train::RunInputs& inputs) const {
    data::LoaderOptions options = train::loader_options(inputs, inputs.data.lengths);
    options.workers = 1;
    options.batch_size = 1;
    options.grad_accum = 1;
    data::Loader loader(*inputs.data.train, options);
    const int64_t most =
        std::min(loader.steps_per_epoch(), options_.steps * inputs.recipe.train.batch_size);
    std::vector<data::Sample> samples;
    for (int64_t step = 0; step < most || (samples.empty() && step < loader.steps_per_epoch());
         ++step) {
      for (std::vector<data::Sample>& micro : loader.next().micro) {
        if (micro.front().supervised() > 0) samples.push_back(std::move(micro.front()));
      }
      if (samples.size() == kJudgedSamples) break;
    }
    return samples;
  }

  static std::string loss_fault(const BareTrial& trial, double least_fall) {
    if (!std::isfinite(trial.before)) return "the loss is not finite before the first step";
    if (!std::isfinite(trial.after)) return "the loss is not finite after the last step";
    const double fall = trial.before - trial.after,
                 least = std::max(kCoreFall * trial.before, least_fall);
    if (fall >= least) return "";
    return fall > 0 ? "the loss hardly falls" : "the loss does not fall";
  }

  /// A step without an image does not affect the image side.
  static std::vector<std::string> unmoved(const train::Run& run, const TrialRun& bench,
                                          bool images) {
    std::vector<std::string> names;
    for (const lora::TrainedModule& module : lora::trained_modules(run.model.trainables)) {
      if (!images && run.model.trainables[module.members.front()].scope != "llm") continue;
      const auto stays = [&](size_t slot) { return bench.moved(slot) == 0; };
      const bool dead = module.adapter() ? std::ranges::any_of(module.members, stays)
                                         : std::ranges::all_of(module.members, stays);
      if (dead) names.push_back(module.name);
    }
    return names;
  }

  train::RunInputs inputs_;
  const BareOptions& options_;
};

/// Runs `lft train` like a user. Its folder is deleted afterwards, and also output_dir if it did
/// not exist before.
void run_train(Recipe recipe, const std::string& dir, const BareOptions& options,
               BareTrial& trial) {
  const bool there = io::path_exists(recipe.output_dir);
  const std::string parent = recipe.output_dir;
  recipe.output_dir = dir;
  recipe.data.eval.clear();
  recipe.train.max_steps = options.steps;
  try {
    train::train(recipe, {.gradients_ready = options.hooks.gradients_ready, .folder_goes = true});
  } catch (const Error& error) {
    trial.fault =
        error.what() + (error.info().where.empty() ? "" : " (" + error.info().where + ")");
  }
  io::remove_tree(dir);
  std::error_code ignored;
  if (!there) std::filesystem::remove(parent, ignored);  // only an empty folder
}

std::string outcome_text(const BareTrial& trial) {
  const std::string losses = std::isfinite(trial.after)
                                 ? "loss " + format_number(trial.before, "%.4f") + " -> " +
                                       format_number(trial.after, "%.4f")
                                 : "";
  if (trial.fault.empty()) {
    return (losses.empty() ? "healthy" : "healthy  " + losses) +
           (trial.remark.empty() ? "" : "; " + trial.remark);
  }
  return "FAILS    " + trial.fault + (losses.empty() ? "" : " (" + losses + ")") +
         (trial.cause ? "; " + trial.cause->name + ": " + join(trial.cause->evidence, "; ") : "");
}

std::string trial_line(const BareTrial& trial) {
  char name[32];
  std::snprintf(name, sizeof name, "%-26s", trial.part.c_str());
  return name + escape_text(outcome_text(trial), 1000) +
         (trial.settings.empty() ? "" : "  [" + escape_text(join(trial.settings), 400) + "]");
}

/// It is deleted at the end.
void refuse_taken(const std::string& dir) {
  if (!io::path_exists(dir)) return;
  refuse(ErrorKind::kUsage, "the folder for the last trial is there already", dir, {}, {},
         "delete it, or choose another output_dir with --set");
}

/// Compares an unusual setting with the loss's fall without it; null: with adapters only.
void try_odd(BareTrials& trials, const Recipe& without, const Recipe& with, const BareTrial* core,
             BareTrial& trial) {
  BareTrial alone{.part = "the adapters alone"};
  if (core == nullptr) trials.run(adapters_alone(without), alone, 0);
  if (core == nullptr && !alone.fault.empty()) return trials.run(with, trial, 0);
  const double usual = core != nullptr ? core->fall() : alone.fall();
  trials.run(core != nullptr ? with : adapters_alone(with), trial, usual / kCuredFall);
  if (trial.fault.empty() && trial.fall() < kSlower * usual) {
    trial.remark = "unusual: without it the loss falls " +
                   format_number(usual / trial.fall(), "%.2g") + " times as far";
  }
}

std::vector<OddSetting>::const_iterator odd_of(const std::vector<OddSetting>& odd,
                                               const std::vector<std::string>& fields) {
  return std::ranges::find_if(odd, [&](const OddSetting& each) {
    return std::ranges::find(fields, each.name) != fields.end();
  });
}

/// The name of the part that a field belongs to.
std::string part_of(const std::string& field) {
  for (const recipe::NamedPart& part : recipe::optional_parts()) {
    const std::vector<std::string> fields = recipe::part_fields(part.part);
    if (std::ranges::find(fields, field) != fields.end()) return part.name;
  }
  return field;
}

/// A part may fail because of an odd setting that was restored before it and was harmless alone. If
/// it works without one, that one is the cause; `with` is then fixed.
void blame_odd_before(BareTrials& trials, const std::vector<OddSetting>& odd, double least_fall,
                      Recipe& with, BareTrial& trial) {
  for (const OddSetting& each : odd) {
    Recipe fixed = with;
    each.fix(fixed);
    const std::vector<std::string> settings = settings_of(fixed, with);
    if (settings.empty() || requested_signal() != 0) continue;
    BareTrial again{.part = trial.part};
    trials.run(fixed, again, least_fall);
    if (!again.fault.empty()) continue;
    trial.fault += " once " + trial.part + " is back, and does without " + each.name;
    trial.part = part_of(each.name);
    trial.settings = settings;
    with = fixed;
    return;
  }
}

/// Repeats the core at ten times the learning rate, and so on, until it learns. Reports a fault if
/// no rate works, or if the rate is not the cause.
BareTrial try_rates(BareTrials& trials, Recipe recipe, const BareTrial& core) {
  const double moves = core.fall();
  BareTrial rate{.part = kLrPart, .fault = "not tried"};
  if (core.cause || !std::isfinite(moves) || moves == 0) return rate;
  const Recipe asked = recipe;
  for (double factor = 10; asked.optim.lr * factor <= kMostLr; factor *= 10) {
    if (requested_signal() != 0) return rate;
    // At a small rate the decrease of the loss is proportional to it.
    if (moves > 0 && moves * factor < kSomeFall * core.before) continue;
    recipe.optim.lr = asked.optim.lr * factor;
    rate = {.part = kLrPart, .settings = settings_of(asked, recipe)};
    trials.run(recipe, rate, kSomeFall * core.before);
    if (rate.fault.empty() && is_cured(core.before, core.after, rate.after)) return rate;
  }
  rate.fault = "no rate helps";
  return rate;
}

/// Runs the core, its parts, and the complete run.
BareReport run_trials(train::RunInputs inputs, const Recipe& asked, const BareOptions& options) {
  BareReport report;
  Recipe current = inputs.recipe;
  const auto add = [&](BareTrial trial) {
    options.print(trial_line(trial));
    report.trials.push_back(std::move(trial));
  };
  const auto stopped = [&] { return (report.signal = requested_signal()) != 0; };
  {
    BareTrials trials(std::move(inputs), options);
    BareTrial core{.part = "core"};
    trials.run(current, core, 0);
    if (stopped()) return report;
    add(core);
    if (!core.fault.empty()) {
      BareTrial rate = try_rates(trials, current, core);
      if (!stopped() && rate.fault.empty()) add(std::move(rate));
      return report;
    }
    const std::vector<OddSetting> odd = odd_settings(asked);
    for (const recipe::NamedPart& part : recipe::optional_parts()) {
      Recipe with = current;
      recipe::copy_part(with, asked, part.part);
      BareTrial trial{.part = part.name, .settings = settings_of(current, with)};
      if (trial.settings.empty()) continue;
      const auto setting = odd_of(odd, recipe::part_fields(part.part));
      if (setting == odd.end()) {
        trials.run(with, trial, kPartFall * core.fall());
        if (!trial.fault.empty())
          blame_odd_before(trials, odd, kPartFall * core.fall(), with, trial);
      } else {
        try_odd(trials, current, with, setting->of_adapters ? nullptr : &core, trial);
      }
      if (stopped()) return report;
      if (trial.fault.empty()) current = with;
      add(std::move(trial));
    }
  }  // one model at a time
  if (!report.healthy()) return report;
  BareTrial whole{.part = kWhole};
  run_train(asked, current.output_dir, options, whole);
  if (!stopped()) add(std::move(whole));
  return report;
}

std::string bare_verdict(const BareReport& report) {
  if (report.healthy()) {
    std::string text = "healthy    nothing fails: the core, and " +
                       std::to_string(report.trials.size() - 1) + " parts put back";
    for (const BareTrial& trial : report.trials) {
      if (!trial.remark.empty()) text += "; " + join(trial.settings) + " is " + trial.remark;
    }
    return text;
  }
  const BareTrial& core = report.trials.front();
  if (!core.fault.empty() && report.trials.size() > 1)
    return "found      learning rate too low: the core learns with " +
           join(report.trials.back().settings);
  if (core.cause) return "found      " + core.cause->name;
  if (!core.fault.empty()) {
    return "found      the core fails by itself, so no part brings it: look at the learning rate, "
           "the model and the data (lft debug "
           "overfit, "
           "lft validate)";
  }
  return "found      " + join(report.causes());
}

std::string bare_advice(const BareReport& report) {
  const BareTrial& core = report.trials.front();
  if (!core.fault.empty() && report.trials.size() > 1)
    return "give optim.lr the value after the arrow: " + join(report.trials.back().settings);
  if (core.cause) return core.cause->next;
  if (!core.fault.empty()) {
    return "look at the learning rate, the model and the data: lft debug overfit, lft validate";
  }
  // The complete run is tried only if every part has passed.
  if (report.causes().front() == kWhole)
    return "lft train says it at length, with what to do about it";
  return "give these settings the value before the arrow: with it the steps were healthy";
}

}  // namespace

bool BareReport::healthy() const {
  return std::ranges::all_of(trials, &std::string::empty, &BareTrial::fault);
}

std::vector<std::string> BareReport::causes() const {
  std::vector<std::string> names;
  for (const BareTrial& trial : trials) {
    if (!trial.fault.empty()) names.push_back(trial.part);
  }
  return names;
}

ErrorInfo bare_error(const BareReport& report) {
  std::vector<std::string> settings, faults;
  for (const BareTrial& trial : report.trials) {
    if (trial.fault.empty()) continue;
    settings.insert(settings.end(), trial.settings.begin(), trial.settings.end());
    faults.push_back(trial.fault + (trial.cause ? "; " + trial.cause->name : ""));
  }
  const bool core = !report.trials.front().fault.empty();
  return {.what = core ? "the core of the run fails by itself"
                       : "a part of the run causes a failure: " + join(report.causes()),
          .where = join(settings),
          .found = join(faults, "; "),
          .expected = "finite steps, trained modules that move and a loss that falls",
          .next = bare_advice(report)};
}

BareReport bare(const Recipe& asked, const BareOptions& options) {
  train::make_deterministic(asked.train.deterministic);
  train::RunInputs inputs = train::open_inputs(core_recipe(asked, options.steps));
  refuse_taken(inputs.recipe.output_dir);
  Recipe settled = asked;
  train::settle_accumulation(settled, inputs.rows);
  BareReport report = run_trials(std::move(inputs), settled, options);
  if (report.signal == 0) options.print(bare_verdict(report));
  return report;
}

}  // namespace lft::debug
