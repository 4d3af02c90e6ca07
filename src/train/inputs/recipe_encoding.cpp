#include "src/train/inputs/recipe_encoding.h"

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/data/dataset_joined.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/model_dir.h"
#include "src/text/chat/template_files.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/inputs/template_check.h"

namespace lft::train {

namespace {

const recipe::Recipe::Data kDefaults;

/// Whether data.max_pixels is the size that images are scaled down to, rather than the limit for
/// decoding.
bool scales(const recipe::Recipe& recipe) {
  return recipe.data.image_fit == recipe::ImageFit::kNative &&
         recipe.data.max_pixels != kDefaults.max_pixels;
}

/// The chat template recorded in the adapter of lora.init_from: a name or its file. "auto" if none
/// is recorded.
std::string template_of_init(const recipe::Recipe& recipe) {
  if (recipe.lora.init_from.empty()) return "auto";
  const hf::AdapterNotes notes = hf::read_notes(recipe.lora.init_from + "/" + hf::kAdapterNotes);
  return notes.input.template_name.empty() ? "auto" : notes.input.template_name;
}

}  // namespace

std::string settle_data(recipe::Recipe& recipe, const std::string& model,
                        const family::ModelConfig& config) {
  const family::FamilyDefaults defaults =
      config.family->defaults(config, hf::image_processor_json(model));
  std::vector<std::string> lines, by_family;
  const auto settle = [](const std::string& field, auto& value, const std::string& own,
                         std::vector<std::string>& chosen) {
    if (value != "auto" || own == "auto") return;
    value = own;
    chosen.push_back(field + " " + own);
  };
  settle("data.template", recipe.data.chat_template, template_of_init(recipe), lines);
  if (!lines.empty()) lines.back() += ", as the adapter of lora.init_from was trained";
  if (!text::find_template(model))
    settle("data.template", recipe.data.chat_template, defaults.template_name, by_family);
  settle("data.image_fit", recipe.data.image_fit, defaults.image_fit, by_family);
  if (!by_family.empty())
    lines.push_back(join(by_family, ", ") + ", as " + config.family->name + " is used");
  return join(lines, "; ");
}

data::EncodeRules encode_rules(const recipe::Recipe& recipe) {
  return {.settings = {.template_name = recipe.data.chat_template,
                       .image_fit = recipe.data.image_fit.word(),
                       .special_tokens = recipe.data.special_tokens_in_text.word(),
                       .alpha = recipe.data.alpha.word(),
                       .min_pixels = recipe.data.min_pixels,
                       .max_pixels = scales(recipe) ? recipe.data.max_pixels : 0,
                       .template_args = recipe.data.template_args.json,
                       .template_date = recipe.data.template_date},
          .max_tokens = recipe.data.max_tokens};
}

family::InputSettings recorded_settings(const recipe::Recipe& recipe) {
  family::InputSettings settings = encode_rules(recipe).settings;
  if (recipe.data.special_tokens_in_text == recipe::SpecialTokenRule::kError)
    settings.special_tokens.clear();
  return settings;
}

void apply_data_rules(const recipe::Recipe& recipe, data::EncodeOptions& options) {
  options.pairs = options.share_prompts = learns_from_pairs(recipe);
  options.labelled = learns_from_labels(recipe);
  options.skip_bad = recipe.data.on_bad_sample == recipe::BadSampleRule::kSkip;
  options.max_bad = recipe.data.max_bad;
  options.count_unknown = recipe.data.unknown_keys == recipe::UnknownKeyRule::kWarn;
  options.count_marks = recipe.data.special_tokens_in_text != recipe::SpecialTokenRule::kError;
  for (const auto& [role, column] : recipe.data.columns) options.columns.names[role] = column;
  options.image_limits.max_pixels = scales(recipe) ? kDefaults.max_pixels : recipe.data.max_pixels;
  options.image_limits.max_side = recipe.data.max_side;
  options.image_limits.follow_symlinks = recipe.data.follow_symlinks;
}

RecipeEncoding recipe_encoding(const recipe::Recipe& asked) {
  const hf::ModelDir model = hf::ModelDir::config_only(asked.model.path);
  recipe::Recipe recipe = asked;
  if (const std::string chosen = settle_data(recipe, recipe.model.path, model.config);
      !chosen.empty())
    notice(chosen);
  RecipeEncoding encoding{.tokenizer = text::Tokenizer::load(recipe.model.path), .options = {}};
  std::string remark;
  encoding.options = data::encode_options(recipe.model.path, model.config, *encoding.tokenizer,
                                          encode_rules(recipe), &remark);
  apply_data_rules(recipe, encoding.options);
  if (!remark.empty()) notice(remark);
  if (const std::string line = judge_template(asked, encoding.options, *encoding.tokenizer);
      !line.empty())
    warning(line);
  return encoding;
}

std::unique_ptr<data::Dataset> open_train(const recipe::Recipe& recipe,
                                          const text::Tokenizer& tokenizer,
                                          const data::EncodeOptions& options,
                                          const data::IndexUse& use) {
  const std::vector<recipe::Source> sources = recipe.data.train.sources();
  std::vector<std::unique_ptr<data::Dataset>> parts;
  for (size_t i = 0; i < sources.size(); ++i) {
    const recipe::Source& source = sources[i];
    data::IndexUse of_part = use;
    for (std::string& stem : of_part.kept) {
      if (sources.size() > 1) stem = data::part_stem(stem, i);
    }
    parts.push_back(data::open_dataset(
        source.path, source.image_root.empty() ? recipe.data.image_root : source.image_root,
        tokenizer, options, of_part));
  }
  if (parts.size() == 1) return std::move(parts.front());
  return data::join_datasets(std::move(parts), /*as_sources=*/true);
}

}  // namespace lft::train
