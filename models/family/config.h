// What a config.json says, as every family has it: the decoder, the tokens, and what only its own
// family reads. Plain data.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/base/config_fields.h"
#include "models/llama/config.h"

namespace lft::family {

class Family;

/// What a family reads of its config.json beside ModelConfig: derived from this, and got back by
/// the family that made it.
struct FamilyFields {
  virtual ~FamilyFields() = default;
};

struct ModelConfig {
  const Family* family = nullptr;  // who reads it; one object a family, which lives for ever
  std::string model_type;          // of config.json
  llama::LlamaConfig text;
  int64_t image_token = -1, pad_token = -1, bos_token = 1;
  std::vector<int64_t> eos_tokens = {2};
  std::string stored_dtype = "float32";  // dtype / torch_dtype of config.json, which is one of
                                         // float32, float16, bfloat16
  std::shared_ptr<const FamilyFields> own;
};

/// Token ids of `top`, or of `text` below it, and how the weights are stored. Throws kInput naming
/// the field for what is out of range.
void parse_tokens(const ConfigFields& top, const ConfigFields& text, ModelConfig* config);
void parse_stored_dtype(const ConfigFields& top, const ConfigFields& text, ModelConfig* config);

/// The decoder's part of Family::fingerprint().
std::string fingerprint_of_decoder(const llama::LlamaConfig& config);

}  // namespace lft::family
