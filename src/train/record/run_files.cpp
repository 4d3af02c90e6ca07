#include "src/train/record/run_files.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/train/machine/precision.h"
#include "src/train/record/run_hash.h"

namespace lft::train {
namespace {

io::Json layers_json(const std::vector<LayerValue>& layers) {
  io::Json json = io::Json::object();
  for (const LayerValue& layer : layers) json[layer.layer] = layer.value;
  return json;
}

}  // namespace

GroupRates rates_of(const Optimizer& optimizer, double factor) {
  GroupRates rates;
  const std::vector<ParamGroup>& groups = optimizer.groups();
  for (size_t i = 1; i < groups.size(); ++i)
    rates.emplace_back(groups[i].name, groups[i].lr * factor);
  return rates;
}

std::vector<std::string> source_names(const recipe::Recipe& recipe) {
  std::vector<std::string> names;
  for (const recipe::Source& source : recipe.data.train.list) {
    const bool twice =
        std::ranges::count(recipe.data.train.list, source.path, &recipe::Source::path) > 1;
    names.push_back(source.path + (twice ? " #" + std::to_string(names.size() + 1) : ""));
  }
  return names;
}

RunFiles::RunFiles(const recipe::Recipe& recipe, report::ProgressOptions progress,
                   uint64_t metrics_bytes, bool writes)
    : progress_(progress), sources_(source_names(recipe)) {
  if (!writes) return;
  metrics_.emplace(recipe.output_dir + "/metrics.jsonl", metrics_bytes);
  if (metrics_->offset() < metrics_bytes) {
    notice(
        "metrics.jsonl is shorter than the checkpoint remembers (a power cut?): lines are missing "
        "from it, the run itself is whole");
  }
  const std::vector<std::string> faults =
      metrics_faults(recipe.output_dir + "/metrics.jsonl", metrics_->offset());
  if (!faults.empty()) {
    warning("metrics.jsonl is damaged, the run itself is whole: " + join(faults, "; ", 5) +
            ". What is read from it (report.html, lft debug diff) lacks these lines");
  }
  if (recipe.log.tensorboard)
    tensorboard_ = std::make_unique<report::TensorBoardWriter>(recipe.output_dir + "/tensorboard",
                                                               progress.first_step + 1);
}

void RunFiles::step(const StepOutcome& outcome, const StepState& state, const StepHashes& hashes,
                    const GroupRates& lrs, const StepTimes& times) {
  report::StepMetrics line{.step = state.step,
                           .loss = outcome.loss,
                           .lr = outcome.lr,
                           .grad_norm = outcome.stats.norm,
                           .loss_scale = outcome.loss_scale,
                           .precision = compute_name(state.compute),
                           .supervised_tokens = outcome.supervised,
                           .tokens = outcome.tokens,
                           .tokens_per_s = static_cast<double>(outcome.tokens) / times.step_s,
                           .step_s = times.step_s,
                           .eval_s = times.eval_s,
                           .checkpoint_s = times.checkpoint_s,
                           .lrs = lrs,
                           .ids_hash = hashes.ids,
                           .run_hash = hashes.run};
  for (const SourceLoss& source : outcome.sources) {
    const std::string& name = sources_[static_cast<size_t>(source.source)];
    line.losses.emplace_back(name, source.loss);
    line.loss_tokens.emplace_back(name, source.supervised);
  }
  if (tensorboard_) add_scalars(line);
  if (metrics_) metrics_->step(line);
  progress_.update(line);
}

/// Written before the line of metrics.jsonl, so that no step is in that file alone after a kill.
void RunFiles::add_scalars(const report::StepMetrics& line) {
  tensorboard_->scalar("train/loss", line.step, line.loss);
  tensorboard_->scalar("train/lr", line.step, line.lr);
  for (const auto& [source, loss] : line.losses)
    tensorboard_->scalar("train/loss " + source, line.step, loss);
  for (const auto& [group, rate] : line.lrs)
    tensorboard_->scalar("train/lr " + group, line.step, rate);
  tensorboard_->scalar("train/grad_norm", line.step, line.grad_norm);
  tensorboard_->scalar("train/loss_scale", line.step, line.loss_scale);
  tensorboard_->scalar("train/tokens_per_s", line.step, line.tokens_per_s);
  tensorboard_->scalar("train/step_s", line.step, line.step_s);
  if (line.eval_s > 0) tensorboard_->scalar("train/eval_s", line.step, line.eval_s);
  if (line.checkpoint_s > 0)
    tensorboard_->scalar("train/checkpoint_s", line.step, line.checkpoint_s);
  tensorboard_->flush();
}

void RunFiles::layer_norms(const StepOutcome& outcome, const Optimizer& optimizer, int64_t step) {
  event(
      "layer_grad_norms", step,
      {{"norm", "l2"}, {"layers", layers_json(layer_grad_norms(optimizer, outcome.stats.norms))}});
  if (!tensorboard_) return;
  for (size_t i = 0; i < outcome.stats.norms.size(); ++i) {
    tensorboard_->scalar("grad_norm/" + optimizer.slots()[i].param.name, step,
                         outcome.stats.norms[i]);
  }
  tensorboard_->flush();
}

void RunFiles::activations(const std::vector<LayerValue>& rms, int64_t step) {
  event("layer_activation_norms", step, {{"norm", "rms"}, {"layers", layers_json(rms)}});
  if (!tensorboard_) return;
  for (const LayerValue& layer : rms)
    tensorboard_->scalar("activation_rms/" + layer.layer, step, layer.value);
  tensorboard_->flush();
}

void RunFiles::warn(const std::vector<NormWarning>& warnings, int64_t step) {
  for (const NormWarning& warning : warnings) {
    event("norm_warning", step, warning_json(warning));
    note(warning_line(warning, step));
  }
}

void RunFiles::warn(const std::string& name, const ErrorInfo& info, int64_t step) {
  event(name, step,
        {{"what", info.what + ": " + info.found},
         {"where", info.where},
         {"expected", info.expected},
         {"next", info.next}});
  note("warning: " + info.what);
  for (const auto& [part, text] : {std::pair{"where", &info.where},
                                   {"found", &info.found},
                                   {"expected", &info.expected},
                                   {"next", &info.next}})
    note(std::string("  ") + part + ": " + *text);
}

void RunFiles::note(const std::string& line) {
  constexpr std::string_view kWarning = "warning: ";
  if (line.starts_with(kWarning)) return warning(line.substr(kWarning.size()));
  notice(line);
}

void RunFiles::eval(int64_t step, double loss, int64_t samples,
                    const std::vector<std::pair<std::string, double>>& figures) {
  io::Json fields = {{"eval_loss", loss}, {"samples", samples}};
  std::string line = "step " + std::to_string(step) + ": eval loss " + format_number(loss, "%.4f");
  for (const auto& [name, value] : figures) {
    fields[name] = value;
    line += ", " + name + " " + format_number(value, "%.4f");
    if (tensorboard_) tensorboard_->scalar("eval/" + name, step, value);
  }
  if (tensorboard_) {
    tensorboard_->scalar("eval/loss", step, loss);
    tensorboard_->flush();
  }
  event("eval", step, fields);
  note(line + " on " + std::to_string(samples) + " samples");
  progress_.eval_loss(loss);
}

uint64_t RunFiles::sync() {
  if (metrics_) metrics_->sync();
  if (tensorboard_) tensorboard_->sync();
  return size();
}

}  // namespace lft::train
