// A model and its adapter as the files that llama.cpp reads.
#pragma once
#include <functional>
#include <string>

#include "src/hf/exports/deltas.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

struct GgufJob {
  const ModelDir& model;
  std::string name;           // of the model, for people
  std::string template_name;  // empty: what the model's folder has, if it has one
  std::function<void()> poll = nullptr;
};

/// model.gguf and mmproj.gguf into `folder`: matrices in the type in which they are stored, all
/// else in float32. Both are read back and compared to the bit. kInput for a tokenizer that
/// llama.cpp has not.
void write_gguf_model(const GgufJob& job, const std::string& folder);
/// lora.gguf: plain LoRA on layers of the decoder.
void write_gguf_lora(const ModelDir& model, const Updates& updates, const std::string& path);
/// What write_gguf_lora() wrote.
Updates read_gguf_lora(const ModelDir& model, const std::string& path);

}  // namespace lft::hf
