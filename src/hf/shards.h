// Which safetensors files a model folder's weights lie in, from the folder and its index alone.
// Opens headers, reads no tensor.
#pragma once
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::hf {

/// A file of weights, and its path below the model's folder.
struct WeightFile {
  std::string name;
  io::SafetensorsFile file;
};

/// One file, or every shard of the index in the order of their names, opened. What the index says
/// of tensors and sizes is not read, as in transformers. Throws kInput: no weights, pickles only,
/// Git LFS pointers, a shard that is missing or whose name leads out of the folder.
std::vector<WeightFile> open_weight_files(const std::string& dir);
/// kInput when the file is a Git LFS pointer instead of what it stands for.
void refuse_lfs_pointer(const std::string& path);

}  // namespace lft::hf
