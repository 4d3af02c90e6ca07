#include "src/train/memory/plan_ahead.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/common/error.h"
#include "models/family/input_settings.h"
#include "src/base/text.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"
#include "src/train/memory/memory_plan.h"

namespace lft::train {
namespace {

constexpr int64_t kManyRows = 1'000'000;  // so that a step is full
constexpr size_t kTextWidth = 36, kPeakWidth = 10, kCardWidth = 8;
constexpr int64_t kPhotoWidth = 640, kPhotoHeight = 480;  // of the image in each row
constexpr double kLeastSaving = 0.01;                     // of the peak

/// A card's memory as reported by the driver, in MiB, and its context's share.
struct Card {
  const char* name;
  double mebibytes;
};
const Card kCards[] = {{"24 GB", 24564}, {"40 GB", 40960}, {"80 GB", 81559}, {"141 GB", 143771}};
constexpr double kContextMebibytes = 1024;
constexpr double kTight = 0.94;  // of the rest; above it fragmentation may use the remaining memory

std::string fit(double peak, const Card& card) {
  const double room = (card.mebibytes - kContextMebibytes) * (1 << 20);
  return peak > room ? "-" : peak > kTight * room ? "tight" : "fits";
}

at::ScalarType planned_compute(recipe::Choice<recipe::ComputeDtype> asked) {
  return asked == recipe::ComputeDtype::kAuto ? at::kBFloat16 : compute_type(asked.word());
}

RunSettings settings_on(at::Device device, at::ScalarType compute, const recipe::Recipe& recipe,
                        const hf::ModelDir& dir) {
  RunSettings settings;
  settings.recipe = recipe;
  settings.device = device;
  settings.precision.compute = compute;
  settings.config = dir.config;
  settings.storage = hf::base_storage(recipe.model.base_dtype.word());
  settings.base_dtype = hf::choose_base_dtype(dir, recipe.model.base_dtype.word(),
                                              settings.precision.compute, settings.device, nullptr);
  settings.shares_prompts = learns_from_pairs(recipe);
  settings.rows = kManyRows;
  settle_accumulation(settings.recipe, kManyRows);
  const recipe::Recipe::Train& train = settings.recipe.train;
  settings.steps_per_epoch = kManyRows / (train.batch_size * train.grad_accum);
  settings.total_steps = settings.steps_per_epoch;
  return settings;
}

/// A photograph as the recipe fits it, without the model's processor file.
family::ImagePlan image_plan(const recipe::Recipe& asked, const family::ModelConfig& config) {
  const nlohmann::json nothing = nlohmann::json::object();
  recipe::Recipe recipe = asked;
  if (recipe.data.image_fit == recipe::ImageFit::kAuto)
    recipe.data.image_fit = config.family->defaults(config, nothing).image_fit;
  std::vector<std::string> notices;
  return config.family
      ->image_processor(config, {.json = nothing, .where = "", .folder = ""},
                        family::image_rules(encode_rules(recipe).settings), &notices)
      ->plan({.width = kPhotoWidth, .height = kPhotoHeight});
}

MicroBatchShape full_micro_batch(const recipe::Recipe& recipe, const family::ImagePlan& image,
                                 int64_t tokens) {
  const int64_t budget = recipe.train.max_tokens_per_step;
  const bool pairs = learns_from_pairs(recipe);
  MicroBatchShape batch{.samples = {}, .indices = {}, .step = 1, .packed = budget > 0 || pairs};
  data::SampleLength row{.tokens = static_cast<int32_t>(tokens),
                         .supervised = static_cast<int32_t>(tokens - image.positions()),
                         .images = 1,
                         .longest = static_cast<int32_t>(tokens)};
  row.add_image(image);
  if (pairs) {
    data::SampleLength other = row;
    other.share_images();
    other.shared = static_cast<int32_t>(image.positions()) - 1;
    row.add_side(other);
  }
  const int64_t rows =
      budget > 0 ? std::max<int64_t>(1, budget / row.packed()) : recipe.train.batch_size;
  batch.samples.assign(static_cast<size_t>(rows), row);
  return batch;
}

/// Smaller passes, recomputation, 4-bit weights, and their combinations.
std::vector<std::pair<std::string, recipe::Recipe>> variations(const recipe::Recipe& asked) {
  std::vector<std::pair<std::string, recipe::Recipe>> all;
  std::vector<int64_t> batches = {asked.train.batch_size};
  if (asked.train.max_tokens_per_step == 0) {
    for (const int64_t batch : {asked.train.batch_size / 4, int64_t{1}})
      if (batch >= 1 && batch < batches.back()) batches.push_back(batch);
  }
  for (const bool codes : {false, true}) {
    if (codes && !could_store_nf4(asked)) continue;
    for (const bool recompute : {false, true}) {
      if (recompute && asked.train.activation_checkpointing == recipe::Checkpointing::kBlock)
        continue;
      for (const int64_t batch : batches) {
        recipe::Recipe recipe = asked;
        std::vector<std::string> changes;
        if (codes) {
          recipe.model.base_dtype = recipe::BaseDtype::kNf4;
          changes.push_back("model.base_dtype=nf4");
        }
        if (recompute) {
          recipe.train.activation_checkpointing = recipe::Checkpointing::kBlock;
          changes.push_back("train.activation_checkpointing=block");
        }
        if (batch != asked.train.batch_size) {
          recipe.train.batch_size = batch;
          changes.push_back("train.batch_size=" + std::to_string(batch));
          if (asked.train.grad_accum > 0) {
            recipe.train.grad_accum = asked.train.grad_accum * asked.train.batch_size / batch;
            changes.push_back("train.grad_accum=" + std::to_string(recipe.train.grad_accum));
          }
        }
        all.emplace_back(join(changes, " "), recipe);
      }
    }
  }
  return all;
}

/// The fields of changes such as "train.batch_size=1 model.base_dtype=nf4".
std::set<std::string> fields_of(const std::string& changes) {
  std::set<std::string> fields;
  std::istringstream words(changes);
  for (std::string word; words >> word;) fields.insert(word.substr(0, word.find('=')));
  return fields;
}

/// Whether a setting needs less than every listed one that changes no other fields than it, by 1%.
bool saves(const std::vector<PlannedSetting>& listed, const PlannedSetting& setting) {
  const std::set<std::string> fields = fields_of(setting.changes);
  return std::ranges::all_of(listed, [&](const PlannedSetting& other) {
    return !std::ranges::includes(fields, fields_of(other.changes)) ||
           setting.peak < (1 - kLeastSaving) * other.peak;
  });
}

/// A CPU's peaks in the two dtypes that lft computes in there, or in the recipe's.
void plan_on_a_cpu(const recipe::Recipe& recipe, const hf::ModelDir& dir,
                   const family::ImagePlan& image, int64_t tokens, PlanAhead& ahead) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    if (recipe.precision.compute != recipe::ComputeDtype::kAuto &&
        compute_type(recipe.precision.compute.word()) != compute)
      continue;
    const RunSettings settings = settings_on(at::kCPU, compute, recipe, dir);
    const MemoryPlan plan = plan_memory(settings, full_micro_batch(settings.recipe, image, tokens));
    const double features = plan.bytes_of(kFeatures);
    ahead.cpu.push_back({compute_name(compute), plan.peak - features});
    ahead.cpu_features = std::max(ahead.cpu_features, features);
  }
}

/// The words in lines of at most kTextWidth characters, where they fit.
std::vector<std::string> wrapped(const std::string& text) {
  std::vector<std::string> lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& last = lines.back();
    if (!last.empty() && last.size() + 1 + word.size() >= kTextWidth) {
      lines.push_back("  " + word);
    } else {
      last += (last.empty() ? "" : " ") + word;
    }
  }
  if (lines.back().size() >= kTextWidth) lines.emplace_back();
  return lines;
}

/// What a plan takes from the model and the recipe.
struct Ahead {
  hf::ModelDir dir;
  family::ImagePlan photo;
  int64_t tokens;  // of a row
};

Ahead look_ahead(const recipe::Recipe& recipe, int64_t tokens) {
  hf::ModelDir dir = hf::ModelDir::shapes_of(recipe.model.path);
  const family::ImagePlan photo = image_plan(recipe, dir.config);
  const int64_t image = photo.positions(), most = dir.config.text.max_positions;
  const bool from_recipe = tokens == 0;
  if (from_recipe) tokens = std::min(recipe.data.max_tokens, most);
  if (tokens <= image || tokens > most) {
    const std::string where = from_recipe ? "data.max_tokens" : "--tokens",
                      what = tokens > most ? "rows are longer than the model's positions"
                                           : "an image of this model does not fit into a row";
    constexpr int64_t kText = 512;  // tokens of a question and its answer
    refuse(ErrorKind::kUsage, what, where, std::to_string(tokens) + " tokens",
           std::to_string(image + 1) + " (a photograph of 640 x 480 and one token) to " +
               std::to_string(most),
           from_recipe ? "set data.max_tokens to " + std::to_string(std::min(image + kText, most)) +
                             " or more, for training as well"
                       : "give --tokens in that range");
  }
  return {std::move(dir), photo, tokens};
}

double gpu_peak(const recipe::Recipe& recipe, const Ahead& ahead) {
  const RunSettings settings =
      settings_on(planned_gpu(), planned_compute(recipe.precision.compute), recipe, ahead.dir);
  return plan_memory(settings, full_micro_batch(settings.recipe, ahead.photo, ahead.tokens)).peak;
}

}  // namespace

PlanAhead plan_ahead(const recipe::Recipe& recipe, int64_t tokens) {
  const Ahead ahead = look_ahead(recipe, tokens);
  PlanAhead plan{.model = ahead.dir.path,
                 .rows = (learns_from_pairs(recipe) ? "pairs of 2 x " : "rows of ") +
                         std::to_string(ahead.tokens) + " tokens, " +
                         std::to_string(ahead.photo.positions()) + " of them an image's",
                 .settings = {}};
  plan_on_a_cpu(recipe, ahead.dir, ahead.photo, ahead.tokens, plan);
  for (const auto& [changes, changed] : variations(recipe)) {
    const PlannedSetting setting{changes, gpu_peak(changed, ahead)};
    if (saves(plan.settings, setting)) plan.settings.push_back(setting);
  }
  return plan;
}

double peak_ahead(const recipe::Recipe& recipe) { return gpu_peak(recipe, look_ahead(recipe, 0)); }

std::vector<std::string> plan_ahead_lines(const PlanAhead& plan) {
  std::string head =
      filled_to("memory on one GPU, by setting", kTextWidth) + filled_to("peak", kPeakWidth);
  for (const Card& card : kCards) head += filled_to(card.name, kCardWidth);
  std::vector<std::string> lines = {plan.model + ", " + plan.rows, head};
  for (const PlannedSetting& setting : plan.settings) {
    const std::vector<std::string> texts =
        wrapped(setting.changes.empty() ? "the recipe as it is" : setting.changes);
    lines.insert(lines.end(), texts.begin(), texts.end() - 1);
    std::string line =
        filled_to(texts.back(), kTextWidth) + filled_to(format_bytes(setting.peak), kPeakWidth);
    for (const Card& card : kCards) line += filled_to(fit(setting.peak, card), kCardWidth);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  std::vector<std::string> cpu;
  for (const PlannedSetting& setting : plan.cpu)
    cpu.push_back(format_bytes(setting.peak) + " in " + setting.changes);
  if (!cpu.empty()) lines.push_back("on a CPU, the recipe as it is: " + join(cpu));
  if (plan.cpu_features > 0)
    lines.push_back("  and up to " + format_bytes(plan.cpu_features) +
                    " for image features (data.image_cache_mb)");
  lines.push_back("tight: above 94% of a card; -: does not fit. Each row has an image of " +
                  std::to_string(kPhotoWidth) + " x " + std::to_string(kPhotoHeight) + ".");
  lines.push_back("Estimated from shapes for the longest rows; lft check uses your data.");
  return lines;
}

}  // namespace lft::train
