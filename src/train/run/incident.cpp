#include "src/train/run/incident.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/checkpoint/tensor_file.h"
#include "src/io/files.h"
#include "src/train/explain/non_finite_pass.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"
#include "src/train/step/bad_rows.h"

namespace lft::train {
namespace {

/// Results of the replay and where they are not finite.
struct Replay {
  io::Json micro = io::Json::array();
  BadRows bad;
};

Replay replay(const IncidentFacts& facts, Run& run, const StepOptions& options) {
  RowPasses rows{.context = step_context(options, facts.before),
                 .parameters = {},
                 .loss_scale = facts.outcome.loss_scale};
  rows.context.normaliser = options.objective->normaliser(global_batch_of(facts.samples).counts());
  // The estimate of all rows would make each of them not finite.
  rows.context.kl = std::isfinite(facts.outcome.kl) ? facts.outcome.kl : 0;
  for (const Slot& slot : run.optimizer.slots())
    rows.parameters.push_back({slot.param.name, slot.param.tensor});
  Replay result;
  std::vector<size_t> bad;
  for (size_t micro = 0; micro < facts.samples.micro.size(); ++micro) {
    const std::vector<data::Sample>& samples = facts.samples.micro[micro];
    if (supervised_tokens(samples) == 0) continue;
    objective::ForwardContext context = rows.context;
    context.dropout->micro_batch = micro;
    const auto loss_in = [&](at::ScalarType compute) {
      context.compute = compute;
      return objective::forward_loss(context, run.model.model, facts.samples.make(samples));
    };
    const PassReport report = watch_pass({.loss = [&] { return loss_in(facts.before.compute); },
                                          .parameters = rows.parameters,
                                          .loss_scale = facts.outcome.loss_scale,
                                          .ops = false});
    if (!report.finite()) bad.push_back(micro);
    const at::NoGradGuard no_grad;
    result.micro.push_back(
        {{"micro_batch", micro},
         {"finite", report.finite() && !report.output},
         {"loss", report.loss},
         {"fp32_loss", loss_in(at::kFloat).item<double>()},
         {"first_bad_gradient",
          report.gradients.empty() ? io::Json() : io::Json(report.gradients.front().name)},
         {"first_bad_module", report.output ? io::Json(report.output->module) : io::Json()}});
  }
  result.bad = find_bad_rows(run.model.model, facts.samples, bad, rows);
  return result;
}

/// The dataset index of a row; -1 if the step has no indices.
int64_t dataset_index(const data::StepSamples& samples, size_t micro, size_t row) {
  return micro < samples.indices.size() && row < samples.indices[micro].size()
             ? samples.indices[micro][row]
             : -1;
}

std::vector<std::string> row_images(const data::Dataset& dataset, int64_t index) {
  return index >= 0 ? dataset.image_paths(index) : std::vector<std::string>{};
}

io::Json bad_row_list(const BadRows& bad, const IncidentFacts& facts, const RunData& data) {
  io::Json list = io::Json::array();
  for (const BadRow& row : bad.rows) {
    const int64_t index = dataset_index(facts.samples, row.micro_batch, row.row);
    io::Json json = {{"id", row.id},
                     {"index", index},
                     {"micro_batch", row.micro_batch},
                     {"images", row_images(*data.train, index)}};
    if (row.position >= 0) {
      const int64_t token = facts.samples.micro[row.micro_batch][row.row]
                                .input_ids[static_cast<size_t>(row.position)];
      json["position"] = row.position;
      json["token_id"] = token;
      json["token"] = data.tokenizer->token_of(token);
    }
    if (row.image >= 0) json["image"] = row.image;
    if (!row.module.empty()) json["first_bad_module"] = row.module;
    list.push_back(std::move(json));
  }
  return list;
}

io::Json sample_list(const data::StepSamples& samples, const data::Dataset& dataset,
                     bool references) {
  io::Json list = io::Json::array();
  for (size_t micro = 0; micro < samples.micro.size(); ++micro) {
    for (size_t i = 0; i < samples.micro[micro].size(); ++i) {
      const data::Sample& sample = samples.micro[micro][i];
      const int64_t index = dataset_index(samples, micro, i);
      list.push_back({{"id", sample.id},
                      {"index", index},
                      {"micro_batch", micro},
                      {"images", row_images(dataset, index)},
                      {"tokens", sample.input_ids.size()},
                      {"supervised_tokens", sample.supervised()}});
      if (references) list.back()["reference"] = sample.reference;
    }
  }
  return list;
}

/// The figures for comparing two batches; counts without a decimal point.
io::Json batch_figures(const data::StepSamples& samples) {
  double rows = 0, images = 0, tokens = 0, supervised = 0, longest = 0, shortest = INFINITY,
         low = INFINITY, high = -INFINITY, sum = 0;
  double pixels = 0;
  for (const auto& micro : samples.micro) {
    for (const data::Sample& sample : micro) {
      const auto length = static_cast<double>(sample.input_ids.size());
      ++rows;
      tokens += length;
      supervised += static_cast<double>(sample.supervised());
      longest = std::max(longest, length);
      shortest = std::min(shortest, length);
      for (const data::PixelImage& image : sample.images) {
        ++images;
        for (const uint8_t value : image.chw) {
          low = std::min<double>(low, value);
          high = std::max<double>(high, value);
          sum += value;
        }
        pixels += static_cast<double>(image.chw.size());
      }
    }
  }
  io::Json figures = io::Json::object();
  const auto put = [&](const char* name, double value) {
    figures[name] =
        value == std::floor(value) ? io::Json(static_cast<int64_t>(value)) : io::Json(value);
  };
  put("micro_batches", static_cast<double>(samples.micro.size()));
  put("rows", rows);
  put("images", images);
  put("tokens", tokens);
  put("supervised_tokens", supervised);
  put("supervised_share", tokens > 0 ? supervised / tokens : 0);
  put("longest_row", longest);
  put("shortest_row", rows > 0 ? shortest : 0);
  if (pixels == 0) return figures;
  put("pixel_min", low);
  put("pixel_max", high);
  put("pixel_mean", sum / pixels);
  return figures;
}

io::Json batch_shapes(const data::StepSamples& samples) {
  io::Json list = io::Json::array();
  for (const auto& micro : samples.micro) {
    size_t longest = 0;
    for (const data::Sample& sample : micro) longest = std::max(longest, sample.input_ids.size());
    list.push_back({micro.size(), longest});
  }
  return list;
}

io::Json compare(const IncidentFacts& facts) {
  const io::Json now = batch_figures(facts.samples);
  io::Json result = {{"batch", now}, {"last_good", nullptr}, {"differences", io::Json::array()}};
  result["batch"]["shapes"] = batch_shapes(facts.samples);
  if (!facts.last_good) return result;
  const io::Json good = batch_figures(*facts.last_good);
  result["last_good"] = good;
  result["last_good"]["step"] = facts.last_good_step;
  result["last_good"]["shapes"] = batch_shapes(*facts.last_good);
  for (const auto& [name, value] : now.items()) {
    const auto other = good.find(name);
    if (other == good.end() || *other == value) continue;
    result["differences"].push_back(name + " " + value.dump() + ", in the last good batch " +
                                    other->dump());
  }
  return result;
}

io::Json gradient_norms(const IncidentFacts& facts, const Optimizer& optimizer) {
  io::Json norms = io::Json::object();
  for (size_t i = 0; i < facts.outcome.stats.norms.size(); ++i)
    norms[optimizer.slots()[i].param.name] = facts.outcome.stats.norms[i];
  return norms;
}

io::Json describe(const IncidentFacts& facts, Run& run, const StepOptions& options) {
  const StepOutcome& outcome = facts.outcome;
  const Optimizer& optimizer = run.optimizer;
  const int64_t bad = outcome.stats.first_bad;
  io::Json incident = {
      {"version", 1},
      {"step", facts.before.step + 1},
      {"reason", outcome.reason},
      {"action", facts.action},
      {"precision", compute_name(facts.before.compute)},
      {"loss", outcome.loss},
      {"loss_scale", outcome.loss_scale},
      {"grad_norm", outcome.stats.norm},
      {"first_bad_gradient",
       bad < 0 ? io::Json(nullptr)
               : io::Json(optimizer.slots()[static_cast<size_t>(bad)].param.name)},
      {"lr_before", facts.lr_before},
      {"lr_after", facts.lr_after},
      {"lr_of_step", outcome.lr},
      {"generator",
       {{"seed", options.seed}, {"epoch", facts.samples.epoch}, {"step", facts.before.step + 1}}},
      {"identity", run_identity(run, run.model.base_digest)},
      {"samples", sample_list(facts.samples, *run.data.train, options.objective->uses_reference())},
      {"skipped_samples", facts.samples.skipped},
      {"grad_norms", gradient_norms(facts, optimizer)}};
  if (options.objective->uses_kl()) incident["kl"] = outcome.kl;
  incident.update(compare(facts));
  return incident;
}

/// Adds the findings of the replay to incident.json and the run's message.
void add_replay(const IncidentFacts& facts, Run& run, const StepOptions& options, io::Json* json,
                Incident* incident) {
  try {
    const Replay found = replay(facts, run, options);
    (*json)["replay"] = found.micro;
    incident->culprit = bad_rows_text(found.bad);
    (*json)["culprit"] = incident->culprit;
    (*json)["bad_rows"] = bad_row_list(found.bad, facts, run.data);
    (*json)["rows_replayed"] = found.bad.looked_at;
    incident->names_a_row = names_a_row(found.bad);
    if (!incident->names_a_row) return;
    const std::vector<std::string> images = (*json)["bad_rows"][0]["images"];
    const auto image = static_cast<size_t>(std::max<int64_t>(found.bad.rows.front().image, 0));
    if (image < images.size()) incident->image = images[image];
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    (*json)["replay"] = "out of memory";  // the run itself may still continue
  }
}

}  // namespace

std::string write_incident_folder(const Run& run, const std::string& name, io::Json json) {
  const std::string root = run.recipe.output_dir + "/incidents";
  std::map<std::string, at::Tensor> trainables;
  for (const Slot& slot : run.optimizer.slots())
    trainables[slot.param.name] = slot.param.tensor.detach();
  io::make_dirs(root);
  io::write_dir_atomic(root + "/" + name, [&](const std::string& dir) {
    json["trainables_sha256"] =
        checkpoint::write_tensor_file(dir + "/trainables.safetensors", trainables);
    io::write_file_atomic(dir + "/incident.json",
                          json.dump(2, ' ', false, io::Json::error_handler_t::replace) + "\n");
    io::write_file_atomic(dir + "/recipe.yaml", recipe::dump_recipe(run.recipe));
  });
  return root + "/" + name;
}

Incident write_incident(Run& run, const StepOptions& options, const IncidentFacts& facts) {
  Incident incident{.dir = {}};
  io::Json json = describe(facts, run, options);
  add_replay(facts, run, options, &json, &incident);
  incident.dir =
      write_incident_folder(run, "step-" + std::to_string(facts.before.step + 1), std::move(json));
  return incident;
}

}  // namespace lft::train
