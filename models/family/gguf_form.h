// A model as llama.cpp's GGUF files have it: its keys of metadata, and what its tensors are called
// and made of. Names and keys are those of llama.cpp's gguf-py (b11549). Plain data; no file is
// written here.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/llama/config.h"

namespace lft::family {

/// A value of GGUF's metadata.
using GgufValue = std::variant<bool, int32_t, uint32_t, float, std::string, std::vector<bool>,
                               std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

/// A tensor of a GGUF file, made of one of the checkpoint's.
struct GgufTensor {
  enum class Make {
    kAsIs,
    kTurned,  // the rows of each of `count` heads: first half and second half take turns, as
              // llama.cpp's rotary positions of a Llama have them
    kFrame,   // of a kernel [out, in, frames, h, w], frame `part`
    kRows,    // part `part` of `count` equal parts of the rows
  };
  std::string name, canonical;
  Make make = Make::kAsIs;
  int64_t part = 0, count = 1;
  bool single = false;  // float32, whatever the checkpoint has
};

/// The two files of a model: the decoder, and the vision tower with its projector.
struct GgufForm {
  std::string architecture;  // of the decoder, "qwen2vl"
  GgufKeys text = {}, vision = {};
  std::vector<GgufTensor> text_tensors = {}, vision_tensors = {};
  /// Keys of `vision` that the image processor's file decides: key, place in its JSON, and what
  /// stands where it is silent.
  struct FromProcessor {
    std::string key, pointer;
    uint32_t otherwise;
  };
  std::vector<FromProcessor> from_processor = {};
};

/// Keys and tensors of a decoder; `turned`: q and k are stored for llama.cpp's own rotary
/// positions.
void add_gguf_decoder(const llama::LlamaConfig& config, bool turned, GgufForm* form);
/// The keys that every vision file has, without the processor's. `inner`: features of the MLP.
struct GgufVision {
  std::string projector;
  int64_t text_hidden, image_size, patch, hidden, inner, blocks, heads;
  double eps;
};
void add_gguf_vision(const GgufVision& vision, GgufForm* form);

}  // namespace lft::family
