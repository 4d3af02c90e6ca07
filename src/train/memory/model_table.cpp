#include "src/train/memory/model_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/text.h"
#include "src/hf/known_models.h"
#include "src/hf/model_dir.h"
#include "src/recipe/recipe.h"
#include "src/train/memory/plan_ahead.h"

namespace lft::train {
namespace {

/// Family and recipe, in the order of the table.
const std::pair<const char*, const char*> kRecipes[] = {
    {"SmolVLM", "smolvlm-lora"},           {"SmolVLM2", "smolvlm-lora"},
    {"Idefics3", "idefics3-lora"},         {"Qwen3.5", "qwen3_5-lora"},
    {"Qwen3.5-MoE", "qwen3_5-lora"},       {"Qwen3-VL", "qwen3-vl-lora"},
    {"Qwen3-VL-MoE", "qwen3-vl-lora"},     {"Qwen2.5-VL", "qwen-vl-lora"},
    {"Qwen2-VL", "qwen-vl-lora"},          {"InternVL3.5", "internvl-lora"},
    {"InternVL3", "internvl-lora"},        {"Gemma 3", "gemma3-lora"},
    {"LLaVA-OneVision", "onevision-lora"}, {"LLaVA-NeXT", "llava-next-lora"},
    {"LLaVA-1.5", "llava-lora-40gb"},
};

double parameters_of(const std::string& model) {
  const family::ModelConfig config = hf::ModelDir::shapes_of(model).config;
  double sum = 0;
  for (const family::TensorSpec& spec : config.family->layout(config).tensors)
    sum += static_cast<double>(c10::multiply_integers(spec.shape));
  return sum;
}

/// What is before and after the * of a form.
std::pair<std::string, std::string> parts_of(const std::string& form) {
  const size_t star = form.find('*');
  return {form.substr(0, star), form.substr(star + 1)};
}

/// "{a,b}" as in a shell, or the only item.
std::string in_braces(const std::vector<std::string>& items) {
  return items.size() == 1 ? items[0] : "{" + join(items, ",") + "}";
}

std::string in_billions(double number) { return format_number(number / 1e9, "%.1f"); }

/// The cells of a row, whose numbers are in the order of the sizes.
struct Row {
  std::vector<std::string> types, names, parameters, dense, nf4;

  void add(const hf::KnownSeries& series, const std::string& recipe_name) {
    const auto [head, tail] = parts_of(series.names.front());
    std::vector<std::string> tails;
    for (const std::string& form : series.names) {
      tails.push_back(parts_of(form).second);
      const hf::ModelDir dir = hf::ModelDir::shapes_of(head + series.sizes[0] + tails.back());
      const std::string type = "`" + dir.config.model_type + "`";
      if (!std::ranges::count(types, type)) types.push_back(type);
    }
    names.push_back("`" + head + in_braces(series.sizes) + in_braces(tails) + "`");
    for (const std::string& size : series.sizes) {
      recipe::Recipe recipe = recipe::read_recipe(recipe_name);
      recipe.model.path = head + size + tail;
      parameters.push_back(in_billions(parameters_of(recipe.model.path)));
      dense.push_back(in_billions(peak_ahead(recipe)));
      recipe.model.base_dtype = recipe::BaseDtype::kNf4;
      nf4.push_back(in_billions(peak_ahead(recipe)));
    }
  }
};

}  // namespace

std::string family_recipe(const std::string& model) {
  const std::string family = hf::known_family(model);
  for (const auto& [name, recipe] : kRecipes)
    if (family == name) return recipe;
  return "";
}

std::string model_table() {
  std::string text =
      "| family | checkpoints | parameters (B) | recipe | GPU memory (GB) | in NF4 (GB) |\n"
      "|---|---|---|---|---|---|\n";
  const std::vector<hf::KnownSeries> known = hf::known_series();
  for (const auto& [family, recipe] : kRecipes) {
    Row row;
    for (const hf::KnownSeries& series : known)
      if (series.family == family) row.add(series, recipe);
    text += "| " +
            join({family + (" (" + join(row.types) + ")"), join(row.names), join(row.parameters),
                  "`" + std::string(recipe) + "`", join(row.dense), join(row.nf4)},
                 " | ") +
            " |\n";
  }
  return text;
}

}  // namespace lft::train
