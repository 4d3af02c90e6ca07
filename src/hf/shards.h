// The safetensors files with the weights of a model folder, from the folder and its index alone.
// Opens headers, reads no tensors.
#pragma once
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::hf {

/// A file of weights, and its path relative to the model folder.
struct WeightFile {
  std::string name;
  io::SafetensorsFile file;
};

/// One file, or all shards of the index in the order of their names, opened. Tensors and sizes in
/// the index are ignored, as in transformers. Throws kInput: no weights, pickles only, Git LFS
/// pointers, a missing shard, or one whose name is outside the folder.
std::vector<WeightFile> open_weight_files(const std::string& dir);
/// Throws kInput if the file is a Git LFS pointer.
void refuse_lfs_pointer(const std::string& path);

}  // namespace lft::hf
