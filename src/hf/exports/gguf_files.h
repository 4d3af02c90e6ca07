// A model and its adapter as the files that llama.cpp reads.
#pragma once
#include <functional>
#include <string>

#include "src/hf/adapter/adapter.h"
#include "src/hf/exports/deltas.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

struct GgufJob {
  const ModelDir& model;
  std::string name;    // of the model, for people
  AdapterNotes notes;  // without a template or a fit: what the model's folder has
  io::DType dtype;     // of the matrices: F32, F16 or BF16
  std::function<void()> poll = nullptr;
};

/// The type of a base's matrices: as they are stored, but F16 for BF16. llama.cpp rounds what it
/// multiplies to the matrix' type, which with the 8 bits of BF16 moves logprobs by some 0.05 nats,
/// with the 11 of F16 by some 0.005; F16 holds all but the smallest values of BF16 exactly.
io::DType gguf_type(io::DType stored);
/// model.gguf and mmproj.gguf into `folder`: matrices in the job's type, all else in F32. Both are
/// read back and compared to the bit. Returns how many matrices keep the type in which they are
/// stored because F16 does not hold their values. kInput for a tokenizer that llama.cpp has not.
int64_t write_gguf_model(const GgufJob& job, const std::string& folder);
/// What llama-server needs beyond the files to bring images to the size of the training, each
/// option after a space; empty where the job's settings leave that to the processor.
std::string gguf_image_options(const GgufJob& job);
/// lora.gguf: plain LoRA on layers of the decoder.
void write_gguf_lora(const ModelDir& model, const Updates& updates, const std::string& path);
/// What write_gguf_lora() wrote.
Updates read_gguf_lora(const ModelDir& model, const std::string& path);

}  // namespace lft::hf
