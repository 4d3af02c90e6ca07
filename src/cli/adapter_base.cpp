#include "src/cli/adapter_base.h"

#include "kernels/common/error.h"
#include "src/io/files.h"

namespace lft::cli {

std::string base_of(const hf::AdapterDir& adapter, const std::string& given) {
  if (!given.empty()) return given;
  for (const std::string& recorded : {adapter.notes.base_path, adapter.base_model_name_or_path}) {
    if (!recorded.empty() && io::is_directory(recorded)) return recorded;
  }
  refuse(ErrorKind::kUsage, "the base model is not where the adapter records it", adapter.path,
         adapter.base_model_name_or_path, "a model directory", "give --model DIR");
}

}  // namespace lft::cli
