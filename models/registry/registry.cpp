#include "models/registry/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/gemma/gemma_family.h"
#include "models/internvl/internvl_family.h"
#include "models/llava/llava_family.h"
#include "models/qwen_vl/qwen_vl_family.h"
#include "models/smolvlm/smolvlm_family.h"

namespace lft::registry {
namespace {

struct Line {
  const char* model_type;
  const family::Family& family;
};

/// One line per model_type of config.json.
const std::vector<Line>& lines() {
  static const std::vector<Line> all = {
      {"llava", llava::llava_family()},
      {"llava_next", llava::llava_family(llava::Kind::kNext)},
      {"llava_onevision", llava::llava_family(llava::Kind::kOneVision)},
      {"internvl", internvl::internvl_family()},
      {"internvl_chat", internvl::internvl_family(internvl::Layout::kOriginal)},
      {"gemma3", gemma::gemma_family()},
      {"smolvlm", smolvlm::smolvlm_family()},
      {"idefics3", smolvlm::smolvlm_family()},
      {"qwen2_5_vl", qwen_vl::qwen_vl_family({qwen_vl::Generation::k2_5})},
      {"qwen2_vl", qwen_vl::qwen_vl_family({qwen_vl::Generation::k2})},
      {"qwen3_vl", qwen_vl::qwen_vl_family({qwen_vl::Generation::k3})},
      {"qwen3_vl_moe", qwen_vl::qwen_vl_family({qwen_vl::Generation::k3, /*experts=*/true})},
      {"qwen3_5", qwen_vl::qwen_vl_family({qwen_vl::Generation::k3_5})},
      {"qwen3_5_moe", qwen_vl::qwen_vl_family({qwen_vl::Generation::k3_5, /*experts=*/true})},
  };
  return all;
}

}  // namespace

std::vector<std::string> model_types() {
  std::vector<std::string> names;
  for (const Line& line : lines()) names.emplace_back(line.model_type);
  return names;
}

const family::Family* find_family(const std::string& model_type) {
  for (const Line& line : lines())
    if (model_type == line.model_type) return &line.family;
  return nullptr;
}

family::ModelConfig parse_config(const nlohmann::json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  std::string model_type;
  top.one_of("model_type", model_types(), &model_type);
  const family::Family* found = find_family(model_type);
  if (found == nullptr) top.fail("model_type", "nothing", "the type of the model");
  return found->parse(config, where);
}

const family::Family& family_of_peft_names(const std::vector<std::string>& names) {
  const family::Family* best = nullptr;
  int64_t most = -1;
  for (const Line& line : lines()) {
    const int64_t known = std::ranges::count_if(names, [&](const std::string& name) {
      return !line.family.names.from_peft_name(name).empty();
    });
    if (known <= most) continue;
    best = &line.family;
    most = known;
  }
  return *best;
}

}  // namespace lft::registry
