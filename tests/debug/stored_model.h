// Changes the stored weights of a tiny run's model.
#pragma once
#include <functional>
#include <string>

#include "debug/names.h"
#include "train/tiny_run.h"

namespace lft::test {

/// Rewrites the model of `run` with changed tensors.
inline void change_model(const TinyRun& run, const std::function<void(StoredTensors&)>& change) {
  write_tiny_llava(run.model(), {.image_token = 260, .vocab = 264, .max_positions = 512}, change);
}

inline float* stored_values(StoredTensors& tensors, const std::string& name) {
  return reinterpret_cast<float*>(tensors.at(name).bytes.data());
}
inline void scale_stored(StoredTensors& tensors, const std::string& name, float factor) {
  float* values = stored_values(tensors, name);
  for (size_t i = 0; i < tensors.at(name).bytes.size() / sizeof(float); ++i) values[i] *= factor;
}

/// An MLP of the LLM with intermediate values `up` times larger: the same function in FP32. 2^17
/// and more exceeds FP16; the weight itself exceeds it from 2^20 on.
inline void scale_mlp(StoredTensors& tensors, int layer, float up) {
  const std::string mlp = "language_model.model.layers." + std::to_string(layer) + ".mlp.";
  scale_stored(tensors, mlp + "up_proj.weight", up);
  scale_stored(tensors, mlp + "down_proj.weight", 1 / up);
}

}  // namespace lft::test
