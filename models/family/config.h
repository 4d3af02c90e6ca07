// The contents of a config.json: the decoder and the tokens, which every family has, and the fields
// of one family. Plain data.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/base/config_fields.h"
#include "models/llama/config.h"

namespace lft::family {

class Family;

/// The base of the fields that only one family has. The family that created an object casts it
/// back.
struct FamilyFields {
  virtual ~FamilyFields() = default;
};

struct ModelConfig {
  const Family* family = nullptr;  // one static object per family
  std::string model_type;          // as in config.json
  llama::LlamaConfig text;
  int64_t image_token = -1, pad_token = -1, bos_token = 1;
  std::vector<int64_t> eos_tokens = {2};
  std::string stored_dtype = "float32";  // dtype / torch_dtype of config.json, which is one of
                                         // float32, float16, bfloat16
  std::shared_ptr<const FamilyFields> own;
};

/// Reads the token ids, from `top` or from its child `text`, and the stored dtype. Throws kInput
/// naming the field that is out of range.
void parse_tokens(const ConfigFields& top, const ConfigFields& text, ModelConfig* config);
void parse_stored_dtype(const ConfigFields& top, const ConfigFields& text, ModelConfig* config);

/// The decoder's part of Family::fingerprint().
std::string fingerprint_of_decoder(const llama::LlamaConfig& config);

}  // namespace lft::family
