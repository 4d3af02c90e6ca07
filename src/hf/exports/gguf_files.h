// Writes a model and its adapter in the files of llama.cpp.
#pragma once
#include <functional>
#include <string>

#include "src/hf/adapter/adapter.h"
#include "src/hf/exports/deltas.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

struct GgufJob {
  const ModelDir& model;
  std::string name;    // display name of the model
  AdapterNotes notes;  // the model folder's template and fit are the defaults
  io::DType dtype;     // dtype of the matrices: F32, F16 or BF16
  std::function<void()> poll = nullptr;
};

/// The dtype of the matrices of a base: as stored, but F16 for BF16. llama.cpp rounds the operands
/// of a product to the type of the matrix, which changes logprobs by about 0.05 nats with the 8
/// bits of BF16 and by about 0.005 with the 11 of F16. F16 represents all but the smallest values
/// of BF16 exactly.
io::DType gguf_type(io::DType stored);
/// Writes model.gguf and mmproj.gguf to `folder`: matrices in the type of the job, everything else
/// in F32. Both are read back and compared bitwise. Returns the number of matrices that keep their
/// stored type because F16 cannot represent their values. Throws kInput for a tokenizer that
/// llama.cpp does not support.
int64_t write_gguf_model(const GgufJob& job, const std::string& folder);
/// Options of llama-server for the image size of the training, each after a space; empty if the
/// processor's defaults apply.
std::string gguf_image_options(const GgufJob& job);
/// Writes lora.gguf: plain LoRA on layers of the decoder.
void write_gguf_lora(const ModelDir& model, const Updates& updates, const std::string& path);
/// Reads a file of write_gguf_lora().
Updates read_gguf_lora(const ModelDir& model, const std::string& path);

}  // namespace lft::hf
