#include "src/hf/interop/interop.h"

#include "kernels/common/error.h"
#include "models/family/family.h"
#include "models/internvl/internvl_images.h"
#include "models/smolvlm/smolvlm_images.h"
#include "src/hf/interop/llava_gguf.h"
#include "src/hf/interop/qwen_vl_gguf.h"
#include "src/hf/interop/smolvlm_gguf.h"

namespace lft::hf {
namespace {

struct InteropRow {
  const char* model_type;
  const char* transformers_class;  // empty: the checkpoint's own code
  const char* oldest_transformers = "4.52";
  const char* more_packages = "";
  bool sglang = false;        // lft exports adapters to it
  bool sglang_loads = false;  // it loads the model, at least without an adapter of lft
  /// The processor's argument for the largest number of pixels; null: max_pixels itself.
  std::string (*size_argument)(const family::ModelConfig&, int64_t max_pixels) = nullptr;
  /// Why lft does not write a GGUF of the model, as a sentence; empty: no particular reason.
  std::string (*why_no_gguf)(const family::ModelConfig&) = nullptr;
  GgufForm (*gguf)(const family::ModelConfig&) = nullptr;
};

std::string longest_edge(const family::ModelConfig&, int64_t max_pixels) {
  return "size={\"longest_edge\": " + std::to_string(smolvlm::longest_edge(max_pixels)) + "}";
}

std::string most_tiles(const family::ModelConfig& config, int64_t max_pixels) {
  return "max_patches=" + std::to_string(internvl::tiles_of(internvl::fields(config), max_pixels));
}

const InteropRow kInterop[] = {
    {.model_type = "llava",
     .transformers_class = "LlavaForConditionalGeneration",
     .why_no_gguf = llava_without_gguf},
    {.model_type = "llava_next",
     .transformers_class = "LlavaNextForConditionalGeneration",
     .why_no_gguf = llava_without_gguf},
    {.model_type = "llava_onevision",
     .transformers_class = "LlavaOnevisionForConditionalGeneration",
     .why_no_gguf = llava_without_gguf},
    {.model_type = "gemma3", .transformers_class = "Gemma3ForConditionalGeneration"},
    {.model_type = "internvl",
     .transformers_class = "InternVLForConditionalGeneration",
     .size_argument = most_tiles},
    {.model_type = "internvl_chat",
     .transformers_class = "",
     .oldest_transformers = "4.37",
     .size_argument = most_tiles},
    {.model_type = "smolvlm",
     .transformers_class = "SmolVLMForConditionalGeneration",
     .more_packages = " num2words",  // SmolVLMProcessor spells out numbers
     .size_argument = longest_edge,
     .why_no_gguf = smolvlm_without_gguf,
     .gguf = smolvlm_gguf},
    {.model_type = "idefics3",
     .transformers_class = "Idefics3ForConditionalGeneration",
     .size_argument = longest_edge,
     .why_no_gguf = smolvlm_without_gguf,
     .gguf = smolvlm_gguf},
    {.model_type = "qwen2_5_vl",
     .transformers_class = "Qwen2_5_VLForConditionalGeneration",
     .sglang = true,
     .why_no_gguf = qwen_vl_without_gguf,
     .gguf = qwen_vl_gguf},
    {.model_type = "qwen2_vl",
     .transformers_class = "Qwen2VLForConditionalGeneration",
     .sglang = true,
     .why_no_gguf = qwen_vl_without_gguf,
     .gguf = qwen_vl_gguf},
    {.model_type = "qwen3_vl",
     .transformers_class = "Qwen3VLForConditionalGeneration",
     .oldest_transformers = "4.57",
     .sglang = true,
     .why_no_gguf = qwen_vl_without_gguf,
     .gguf = qwen_vl_gguf},
    {.model_type = "qwen3_5",
     .transformers_class = "Qwen3_5ForConditionalGeneration",
     .oldest_transformers = "5.2",
     .sglang_loads = true},
    {.model_type = "qwen3_vl_moe",
     .transformers_class = "Qwen3VLMoeForConditionalGeneration",
     .oldest_transformers = "5.0"},
    {.model_type = "qwen3_5_moe",
     .transformers_class = "Qwen3_5MoeForConditionalGeneration",
     .oldest_transformers = "5.2"},
};

const InteropRow& row_of(const family::ModelConfig& config) {
  for (const InteropRow& row : kInterop) {
    if (config.model_type == row.model_type) return row;
  }
  throw Error(ErrorKind::kInternal, "no interop row of " + config.model_type);
}

}  // namespace

std::string transformers_class(const family::ModelConfig& config) {
  return row_of(config).transformers_class;
}

std::string oldest_transformers(const family::ModelConfig& config) {
  return row_of(config).oldest_transformers;
}

std::string more_packages(const family::ModelConfig& config) {
  return row_of(config).more_packages;
}

std::string processor_arguments(const family::ModelConfig& config,
                                const family::InputSettings& input) {
  if (const InteropRow& row = row_of(config); row.size_argument != nullptr)
    return input.max_pixels > 0 ? ", " + row.size_argument(config, input.max_pixels) : "";
  std::string text;
  if (input.min_pixels > 0) text += ", min_pixels=" + std::to_string(input.min_pixels);
  if (input.max_pixels > 0) text += ", max_pixels=" + std::to_string(input.max_pixels);
  return text;
}

std::string why_not_served(Server server, const family::ModelConfig& config) {
  const InteropRow& row = row_of(config);
  const std::string& name = config.family->name;
  if (server == Server::kSglang) {
    if (row.sglang) return "";
    if (row.sglang_loads) return "lft exports no adapter of " + name + " to SGLang";
    return std::string(row.transformers_class).empty()
               ? "lft exports no adapter of " + name + "'s original layout to SGLang"
               : "SGLang 0.5.23 loads no " + name + " in Hugging Face layout";
  }
  const std::string why = row.why_no_gguf == nullptr ? "" : row.why_no_gguf(config);
  return row.gguf != nullptr || !why.empty() ? why : "lft writes no GGUF of " + name;
}

GgufForm gguf_form(const family::ModelConfig& config) {
  const InteropRow& row = row_of(config);
  if (row.gguf == nullptr)
    throw Error(ErrorKind::kInternal, "no GGUF form of " + config.family->name);
  return row.gguf(config);
}

}  // namespace lft::hf
