#include "src/train/record/run_files.h"

#include <algorithm>
#include <sstream>

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/recipe/pair_words.h"
#include "src/report/figure_text.h"
#include "src/train/machine/precision.h"
#include "src/train/record/run_hash.h"

namespace lft::train {
namespace {

io::Json layers_json(const std::vector<LayerValue>& layers) {
  io::Json json = io::Json::object();
  for (const LayerValue& layer : layers) json[layer.layer] = layer.value;
  return json;
}

/// The texts of the events "warning".
std::set<std::string> recorded_warnings(const std::string& path) {
  std::set<std::string> texts;
  std::istringstream lines(io::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{\"event\":\"warning\"")) continue;
    const io::Json json = io::Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("text") && json["text"].is_string())
      texts.insert(json["text"].get<std::string>());
  }
  return texts;
}

/// The settings by which runs are compared, by their names in a recipe.
std::vector<report::HParam> hyper_parameters(const recipe::Recipe& recipe) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  std::vector<report::HParam> params = {{"model.path", recipe.model.path},
                                        {"model.base_dtype", recipe.model.base_dtype.word()},
                                        {"data.train", recipe.data.train.text()},
                                        {"optim.name", recipe.optim.name},
                                        {"optim.lr", recipe.optim.lr},
                                        {"optim.schedule", recipe.optim.schedule.word()},
                                        {"optim.warmup_ratio", recipe.optim.warmup_ratio},
                                        {"optim.weight_decay", recipe.optim.weight_decay},
                                        {"precision.compute", recipe.precision.compute.word()},
                                        {"train.epochs", number(recipe.train.epochs)},
                                        {"train.max_steps", number(recipe.train.max_steps)},
                                        {"train.batch_size", number(recipe.train.batch_size)},
                                        {"train.grad_accum", number(recipe.train.grad_accum)},
                                        {"train.seed", number(recipe.train.seed)}};
  if (!recipe.full.empty()) params.push_back({"full", join(recipe.full)});
  if (recipe.lora.targets.empty()) return params;
  const std::vector<report::HParam> lora = {{"lora.variant", recipe.lora.variant},
                                            {"lora.rank", number(recipe.lora.rank)},
                                            {"lora.alpha", recipe.lora.alpha},
                                            {"lora.dropout", recipe.lora.dropout},
                                            {"lora.targets", join(recipe.lora.targets)}};
  params.insert(params.end(), lora.begin(), lora.end());
  return params;
}

/// Tags of the scalars that the HParams tab shows.
std::vector<std::string> compared_scalars(const recipe::Recipe& recipe) {
  std::vector<std::string> tags = {"train/loss", "train/tokens_per_s"};
  if (!recipe.data.eval.empty() || recipe.data.eval_share > 0)
    tags.insert(tags.begin(), "eval/loss");
  return tags;
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
    : progress_(progress),
      sources_(source_names(recipe)),
      pairs_(recipe::learns_from_pairs(recipe)) {
  if (!writes) return;
  metrics_.emplace(recipe.output_dir + "/metrics.jsonl", metrics_bytes);
  if (metrics_->offset() < metrics_bytes) {
    notice(
        "metrics.jsonl is shorter than the checkpoint remembers (a power cut?): lines are missing "
        "from it, the run itself is whole");
  }
  if (metrics_->offset() > 0) warnings_ = recorded_warnings(recipe.output_dir + "/metrics.jsonl");
  const std::vector<std::string> faults =
      metrics_faults(recipe.output_dir + "/metrics.jsonl", metrics_->offset());
  if (!faults.empty()) {
    warning("metrics.jsonl is damaged, the run itself is whole: " + join(faults, "; ", 5) +
            ". What is read from it (report.html, lft debug diff) lacks these lines");
  }
  write_warnings(progress.first_step);
  if (!recipe.log.tensorboard) return;
  tensorboard_ = std::make_unique<report::TensorBoardWriter>(recipe.output_dir + "/tensorboard",
                                                             progress.first_step + 1);
  tensorboard_->hparams(hyper_parameters(recipe), compared_scalars(recipe));
}

void RunFiles::step(const StepOutcome& outcome, const StepState& state, const StepHashes& hashes,
                    const GroupRates& lrs, const StepTimes& times, double memory_bytes) {
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
                           .figures = outcome.figures,
                           .ids_hash = hashes.ids,
                           .run_hash = hashes.run};
  for (const SourceLoss& source : outcome.sources) {
    const std::string& name = sources_[static_cast<size_t>(source.source)];
    line.losses.emplace_back(name, source.loss);
    line.loss_tokens.emplace_back(name, source.supervised);
  }
  write_warnings(state.step);
  if (tensorboard_) add_scalars(line, memory_bytes);
  if (metrics_) metrics_->step(line);
  progress_.update(line);
}

/// Written before the line of metrics.jsonl, so that no step is in that file alone after a kill.
/// TensorBoard sorts its groups by name: eval and train come first, then their details.
void RunFiles::add_scalars(const report::StepMetrics& line, double memory_bytes) {
  const auto put = [&](const std::string& tag, double value) {
    tensorboard_->scalar(tag, line.step, value);
  };
  put("train/loss", line.loss);
  put("train/lr", line.lr);
  for (const auto& [source, loss] : line.losses) put("train/loss " + source, loss);
  for (const auto& [group, rate] : line.lrs) put("train/lr " + group, rate);
  for (const auto& [figure, value] : line.figures) put("train/" + figure, value);
  put("train/grad_norm", line.grad_norm);
  put("train/tokens_per_s", line.tokens_per_s);
  if (memory_bytes > 0) put("train/memory_gb", memory_bytes / 1e9);
  put("train_details/step_s", line.step_s);
  if (line.precision == "fp16") put("train_details/loss_scale", line.loss_scale);
  if (line.eval_s > 0) put("train_details/eval_s", line.eval_s);
  if (line.checkpoint_s > 0) put("train_details/checkpoint_s", line.checkpoint_s);
  tensorboard_->flush();
}

void RunFiles::layer_norms(const StepOutcome& outcome, const Optimizer& optimizer, int64_t step) {
  event(
      "layer_grad_norms", step,
      {{"norm", "l2"}, {"layers", layers_json(layer_grad_norms(optimizer, outcome.stats.norms))}});
  if (!tensorboard_) return;
  for (size_t i = 0; i < outcome.stats.norms.size(); ++i) {
    tensorboard_->scalar("train_layers/grad_norm/" + optimizer.slots()[i].param.name, step,
                         outcome.stats.norms[i]);
  }
  tensorboard_->flush();
}

void RunFiles::activations(const std::vector<LayerValue>& rms, int64_t step) {
  event("layer_activation_norms", step, {{"norm", "rms"}, {"layers", layers_json(rms)}});
  if (!tensorboard_) return;
  for (const LayerValue& layer : rms)
    tensorboard_->scalar("train_layers/activation_rms/" + layer.layer, step, layer.value);
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

void RunFiles::event(const std::string& name, int64_t step, const io::Json& fields) {
  if (!metrics_) return;
  write_warnings(step);
  metrics_->event(name, step, fields);
}

void RunFiles::write_warnings(int64_t step) {
  if (!metrics_) return;
  for (const std::string& text : take_warnings()) {
    if (warnings_.insert(text).second) metrics_->event("warning", step, {{"text", text}});
  }
}

void RunFiles::note(const std::string& line) {
  constexpr std::string_view kWarning = "warning: ";
  if (line.starts_with(kWarning)) return show_warning(line.substr(kWarning.size()));
  notice(line);
}

void RunFiles::ended(bool success) {
  if (tensorboard_) tensorboard_->hparams_done(success);
}

void RunFiles::eval(int64_t step, double loss, int64_t samples,
                    const std::vector<std::pair<std::string, double>>& figures) {
  io::Json fields = {{"eval_loss", loss}, {"samples", samples}};
  std::string line = "step " + std::to_string(step) + ": eval loss " + format_number(loss, "%.4f");
  line += report::figures_text(figures);
  for (const auto& [name, value] : figures) {
    fields[name] = value;
    if (tensorboard_) tensorboard_->scalar("eval/" + name, step, value);
  }
  if (tensorboard_) {
    tensorboard_->scalar("eval/loss", step, loss);
    tensorboard_->flush();
  }
  event("eval", step, fields);
  note(line + " on " + std::to_string(samples) + (pairs_ ? " pairs" : " samples"));
  progress_.eval_loss(loss);
}

uint64_t RunFiles::sync() {
  if (metrics_) metrics_->sync();
  if (tensorboard_) tensorboard_->sync();
  return size();
}

}  // namespace lft::train
