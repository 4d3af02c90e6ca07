#include "src/serve/neutral_fields.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lft::serve {
namespace {

using io::Json;

/// Fields that never change an answer here: names, accounts, caches, and the effort of reasoning
/// models.
constexpr std::array<std::string_view, 20> kSaysNothing = {"user",
                                                           "metadata",
                                                           "store",
                                                           "service_tier",
                                                           "safety_identifier",
                                                           "verbosity",
                                                           "reasoning_effort",
                                                           "prompt_cache_key",
                                                           "prompt_cache_retention",
                                                           "parallel_tool_calls",
                                                           "request_id",
                                                           "rid",
                                                           "cache_salt",
                                                           "cache_prompt",
                                                           "priority",
                                                           "include_reasoning",
                                                           "separate_reasoning",
                                                           "stream_reasoning",
                                                           "spaces_between_special_tokens",
                                                           "add_special_tokens"};

/// Values that equal the absence of the field: defaults of OpenAI, vLLM, SGLang and llama.cpp. For
/// a field that is not listed only empty values are neutral.
struct Neutral {
  std::string_view field, values;  // JSON, a list
};
constexpr Neutral kNeutral[] = {
    {"best_of", "[1]"},
    {"frequency_penalty", "[0]"},
    {"presence_penalty", "[0]"},
    {"tool_choice", R"(["none", "auto"])"},
    {"function_call", R"(["none", "auto"])"},
    {"modalities", R"([["text"]])"},
    {"response_format", R"([{"type": "text"}])"},
    {"min_p", "[0]"},
    {"min_tokens", "[0]"},
    {"length_penalty", "[1]"},
    {"skip_special_tokens", "[true]"},
    {"add_generation_prompt", "[true]"},
    {"repeat_penalty", "[1]"},
    {"typical_p", "[1]"},
    {"tfs_z", "[1]"},
    {"mirostat", "[0]"},
    {"dynatemp_range", "[0]"},
    {"dry_multiplier", "[0]"},
    {"xtc_probability", "[0]"},
    {"n_predict", "[-1]"},
    {"id_slot", "[-1]"},
};

}  // namespace

bool is_empty_value(const io::Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

bool is_neutral(const std::string& field, const Json& value) {
  if (value.is_null() || std::ranges::find(kSaysNothing, field) != kSaysNothing.end()) return true;
  for (const Neutral& known : kNeutral) {
    if (field != known.field) continue;
    const Json values = Json::parse(known.values);
    return std::ranges::find(values, value) != values.end();
  }
  return is_empty_value(value);
}

}  // namespace lft::serve
