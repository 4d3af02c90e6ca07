// A model in llama.cpp's GGUF files: its metadata, and the names and sources of its tensors. Names
// and keys are those of llama.cpp's gguf-py (b11549). Plain data; no file is written here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/llama/config.h"
#include "src/io/gguf/gguf.h"

namespace lft::hf {

/// A tensor of a GGUF file and its source in the checkpoint.
struct GgufTensor {
  enum class Make {
    kAsIs,
    kInterleaved,  // the rows of each of `count` heads, alternating between the first and the
                   // second half, as llama.cpp's rotary embedding of a Llama expects
    kFrame,        // frame `part` of a kernel [out, in, frames, h, w]
    kRows,         // part `part` of `count` equal parts of the rows
  };
  std::string name, canonical;
  Make make = Make::kAsIs;
  int64_t part = 0, count = 1;
  bool single = false;  // float32 for any dtype of the checkpoint
};

/// The two files of a model: the decoder, and the vision tower with its projector.
struct GgufForm {
  std::string architecture;  // the decoder's architecture, "qwen2vl"
  io::GgufKeys text = {}, vision = {};
  std::vector<GgufTensor> text_tensors = {}, vision_tensors = {};
  /// Keys of `vision` whose values are in the image processor's file: the key, the pointer into its
  /// JSON, and the value if the file has none.
  struct FromProcessor {
    std::string key, pointer;
    uint32_t otherwise;
  };
  std::vector<FromProcessor> from_processor = {};
};

/// Adds the keys and tensors of a decoder; `interleaved`: q and k as kInterleaved.
void add_gguf_decoder(const llama::LlamaConfig& config, bool interleaved, GgufForm* form);
/// The keys that every vision file has, without the processor's. `inner`: features of the MLP.
struct GgufVision {
  std::string projector;
  int64_t text_hidden, image_size, patch, hidden, inner, blocks, heads;
  double eps;
};
void add_gguf_vision(const GgufVision& vision, GgufForm* form);

}  // namespace lft::hf
