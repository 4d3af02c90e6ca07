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

namespace lft::train {
namespace {

io::Json replay(const IncidentFacts& facts, llava::Llava& model, const Optimizer& optimizer,
                const StepOptions& options) {
  std::vector<NamedTensor> parameters;
  for (const Slot& slot : optimizer.slots())
    parameters.push_back({slot.param.name, slot.param.tensor});
  io::Json result = io::Json::array();
  for (size_t micro = 0; micro < facts.samples.micro.size(); ++micro) {
    const std::vector<data::Sample>& samples = facts.samples.micro[micro];
    if (supervised_tokens(samples) == 0) continue;
    MicroPass pass = micro_pass(options, facts.before);
    pass.micro_batch = micro;
    pass.supervised = facts.outcome.supervised;
    const auto loss_in = [&](at::ScalarType compute) {
      pass.compute = compute;
      return micro_loss(model, facts.samples.make(samples), pass);
    };
    const PassReport report = watch_pass({.loss = [&] { return loss_in(facts.before.compute); },
                                          .parameters = parameters,
                                          .loss_scale = facts.outcome.loss_scale,
                                          .ops = false});
    // Inner modules end before outer ones.
    const auto module = std::ranges::find_if(
        report.modules, [](const ModuleRow& row) { return !std::isfinite(row.largest); });
    const bool fine = module == report.modules.end();
    const at::NoGradGuard no_grad;
    result.push_back(
        {{"micro_batch", micro},
         {"finite", report.finite() && fine},
         {"loss", report.loss},
         {"fp32_loss", loss_in(at::kFloat).item<double>()},
         {"first_bad_gradient",
          report.gradients.empty() ? io::Json() : io::Json(report.gradients.front().name)},
         {"first_bad_module", fine ? io::Json() : io::Json(module->module)}});
  }
  return result;
}

io::Json sample_list(const data::StepSamples& samples, const data::Dataset& dataset) {
  io::Json list = io::Json::array();
  for (size_t micro = 0; micro < samples.micro.size(); ++micro) {
    for (size_t i = 0; i < samples.micro[micro].size(); ++i) {
      const data::Sample& sample = samples.micro[micro][i];
      const int64_t index = micro < samples.indices.size() && i < samples.indices[micro].size()
                                ? samples.indices[micro][i]
                                : -1;
      list.push_back(
          {{"id", sample.id},
           {"index", index},
           {"micro_batch", micro},
           {"images", index >= 0 ? dataset.image_paths(index) : std::vector<std::string>{}},
           {"tokens", sample.input_ids.size()},
           {"supervised_tokens", sample.supervised()}});
    }
  }
  return list;
}

/// The figures by which two batches are compared; counts without a decimal point.
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

io::Json describe(const IncidentFacts& facts, llava::Llava& model, const Optimizer& optimizer,
                  const data::Dataset& dataset, const StepOptions& options) {
  const StepOutcome& outcome = facts.outcome;
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
      {"samples", sample_list(facts.samples, dataset)},
      {"skipped_samples", facts.samples.skipped},
      {"grad_norms", gradient_norms(facts, optimizer)}};
  incident.update(compare(facts));
  try {
    incident["replay"] = replay(facts, model, optimizer, options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    incident["replay"] = "out of memory";  // the run itself may still find a way
  }
  return incident;
}

}  // namespace

std::string write_incident(const std::string& incidents_dir, const IncidentFacts& facts,
                           llava::Llava& model, const Optimizer& optimizer,
                           const data::Dataset& dataset, const StepOptions& options,
                           const std::string& recipe_text) {
  const std::string text = describe(facts, model, optimizer, dataset, options)
                               .dump(2, ' ', false, io::Json::error_handler_t::replace) +
                           "\n";
  std::map<std::string, at::Tensor> trainables;
  for (const Slot& slot : optimizer.slots())
    trainables[slot.param.name] = slot.param.tensor.detach();
  const std::string path = incidents_dir + "/step-" + std::to_string(facts.before.step + 1);
  io::make_dirs(incidents_dir);
  io::write_dir_atomic(path, [&](const std::string& dir) {
    io::write_file_atomic(dir + "/incident.json", text);
    io::write_file_atomic(dir + "/recipe.yaml", recipe_text);
    checkpoint::write_tensor_file(dir + "/trainables.safetensors", trainables);
  });
  return path;
}

}  // namespace lft::train
