// A tiny run whose model can learn its rows by heart: the random head of the plain one is too flat for a confident answer.
#pragma once
#include "train/tiny_run.h"

namespace lft::test {

/// Writes the model of `run` again with an LM head ten times as large.
inline void make_learnable(const TinyRun& run) {
  write_tiny_llava(run.model(), {.image_token = 260, .vocab = 264, .max_positions = 512}, [](StoredTensors& tensors) {
    StoredTensor& head = tensors.at("language_model.lm_head.weight");
    float* values = reinterpret_cast<float*>(head.bytes.data());
    for (size_t i = 0; i < head.bytes.size() / sizeof(float); ++i) values[i] *= 10;
  });
}

}  // namespace lft::test
