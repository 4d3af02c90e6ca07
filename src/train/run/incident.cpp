#include "src/train/run/incident.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/base/call.h"
#include "src/checkpoint/tensor_file.h"
#include "src/io/files.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"

namespace lft::train {
namespace {

bool all_finite(const at::Tensor& tensor) {
  return !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

/// Remembers the first module whose output is not finite while its inputs were.
class NonFiniteFinder : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    if (first.empty() && !std::all_of(outputs.begin(), outputs.end(), all_finite))
      first = path;  // inner modules end before outer ones
  }
  std::string first;
};

io::Json or_null(const std::string& text) {
  return text.empty() ? io::Json(nullptr) : io::Json(text);
}

/// Gradients by autograd::grad, so that nothing is accumulated into a parameter.
std::string first_bad_gradient(const at::Tensor& loss, const Optimizer& optimizer) {
  if (!loss.requires_grad()) return "";
  std::vector<at::Tensor> parameters;
  for (const Slot& slot : optimizer.slots()) parameters.push_back(slot.param.tensor);
  const auto gradients = torch::autograd::grad({loss}, parameters, {}, std::nullopt,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined() && !all_finite(gradients[i])) return optimizer.slots()[i].param.name;
  }
  return "";
}

io::Json replay(const IncidentFacts& facts, llava::Llava& model, const Optimizer& optimizer,
                const StepOptions& options) {
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
    NonFiniteFinder finder;
    at::Tensor loss;
    {
      const ObserveCalls observe(finder);
      loss = loss_in(facts.before.compute);
    }
    const std::string bad = first_bad_gradient(loss * facts.outcome.loss_scale, optimizer);
    const at::NoGradGuard no_grad;
    const double value = loss.item<double>();
    const bool suspect = !std::isfinite(value) || !bad.empty() || !finder.first.empty();
    result.push_back({{"micro_batch", micro},
                      {"finite", !suspect},
                      {"loss", value},
                      {"fp32_loss", loss_in(at::kFloat).item<double>()},
                      {"first_bad_gradient", or_null(bad)},
                      {"first_bad_module", or_null(finder.first)}});
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

/// The figures by which two batches are compared.
std::map<std::string, double> batch_figures(const data::StepSamples& samples) {
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
  std::map<std::string, double> figures = {
      {"micro_batches", static_cast<double>(samples.micro.size())},
      {"rows", rows},
      {"images", images},
      {"tokens", tokens},
      {"supervised_tokens", supervised},
      {"supervised_share", tokens > 0 ? supervised / tokens : 0},
      {"longest_row", longest},
      {"shortest_row", rows > 0 ? shortest : 0}};
  if (pixels > 0)
    figures.insert({{"pixel_min", low}, {"pixel_max", high}, {"pixel_mean", sum / pixels}});
  return figures;
}

/// Counts without a decimal point.
io::Json figure_json(double value) {
  return value == std::floor(value) ? io::Json(static_cast<int64_t>(value)) : io::Json(value);
}

io::Json figures_json(const std::map<std::string, double>& figures) {
  io::Json json = io::Json::object();
  for (const auto& [name, value] : figures) json[name] = figure_json(value);
  return json;
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
  const std::map<std::string, double> now = batch_figures(facts.samples);
  io::Json batch = figures_json(now);
  batch["shapes"] = batch_shapes(facts.samples);
  io::Json result = {{"batch", batch}, {"last_good", nullptr}, {"differences", io::Json::array()}};
  if (!facts.last_good) return result;
  const std::map<std::string, double> good = batch_figures(*facts.last_good);
  result["last_good"] = figures_json(good);
  result["last_good"]["step"] = facts.last_good_step;
  result["last_good"]["shapes"] = batch_shapes(*facts.last_good);
  for (const auto& [name, value] : now) {
    const auto other = good.find(name);
    if (other == good.end() || other->second == value) continue;
    result["differences"].push_back(name + " " + figure_json(value).dump() +
                                    ", in the last good batch " +
                                    figure_json(other->second).dump());
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
