#include "src/hf/model_dir_fingerprint.h"

#include <algorithm>

#include "src/base/hash.h"
#include "src/hf/weights.h"

namespace lft::hf {
std::string base_fingerprint(const ModelDir& dir) {
  constexpr uint64_t kBlock = 4096;
  Sha256 hash;
  hash.update(dir.config.family->fingerprint(dir.config));
  std::string buffer(kBlock, '\0');
  for (const auto& [name, place] : dir.tensors) {
    const io::TensorInfo& info = dir.info(place);
    hash.update("\n" + name + " " + io::dtype_name(info.dtype) + " " + shape_text(info.shape) +
                "\n");
    const uint64_t bytes = std::min(kBlock, info.bytes);
    for (const uint64_t begin : {uint64_t{0}, (info.bytes - bytes) / 2, info.bytes - bytes}) {
      dir.files[place.file].read_range(info, begin, bytes, buffer.data());
      hash.update(buffer.data(), bytes);
    }
  }
  return hash.hex();
}

}  // namespace lft::hf
