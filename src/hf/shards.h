// Which safetensors files a model folder's weights lie in, from the folder and its index alone.
// Opens headers, reads no tensor.
#pragma once
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::hf {

/// One file or every shard of the index, opened. Throws kInput: no weights, pickles only, Git LFS
/// pointers, an index that names anything but one path component *.safetensors, a missing shard, a
/// tensor that is absent, in another shard than listed, or listed for none.
std::vector<io::SafetensorsFile> open_weight_files(const std::string& dir);
/// kInput when the file is a Git LFS pointer instead of what it stands for.
void refuse_lfs_pointer(const std::string& path);

}  // namespace lft::hf
