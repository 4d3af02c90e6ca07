#include "src/hf/adapter/adapter_parts.h"

#include <algorithm>
#include <set>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/registry/registry.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_readme.h"
#include "src/hf/expert_slices.h"
#include "src/hf/shards.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::hf {
void save_parts(const std::string& path, family::Model& model, const std::vector<std::string>& full,
                const AdapterNotes& notes) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, parameter] : model_parameters(*model)) {
    if (std::ranges::find(full, lora::scope_of(name)) == full.end()) continue;
    tensors[model->config.family->names.whole_name(name)] = written_tensor(
        model->config, name, parameter.detach().to(at::kCPU, at::kFloat).contiguous());
  }
  io::write_dir_atomic(path, [&](const std::string& out) {
    write_tensors(out + "/" + kPartsWeights, tensors);
    io::write_file_atomic(out + "/" + kAdapterNotes, notes_text(notes));
    write_chat_template(out, notes);
    io::write_file_atomic(out + "/README.md",
                          parts_readme(full, notes, model->config, io::absolute_path(path)));
  });
}

AdapterDir open_parts(const std::string& path) {
  AdapterDir dir;
  dir.path = io::absolute_path(path);
  dir.parts = true;
  refuse_lfs_pointer(dir.weights());
  dir.notes = read_notes(path + "/" + kAdapterNotes);
  dir.base_model_name_or_path = dir.notes.base_path;
  Faults unknown{"unknown", {}}, mistyped{"of a wrong type", {}};
  std::set<std::string> scopes;
  const io::SafetensorsFile file(dir.weights());
  std::vector<std::string> names;
  for (const auto& [name, info] : file.tensors()) names.push_back(name);
  const family::Family& family = registry::family_of_peft_names(names);
  for (const auto& [name, info] : file.tensors()) {
    const std::string canonical = family.names.tensor_of_peft(name);
    if (info.dtype != io::DType::kF32)
      mistyped.items.push_back(name + ": found " + io::dtype_name(info.dtype) + ", expected F32");
    if (canonical.empty() || !dir.stored_names.emplace(canonical, name).second) {
      unknown.items.push_back(name);
      continue;
    }
    dir.full_tensors.push_back(canonical);
    scopes.insert(lora::scope_of(canonical));
  }
  const std::vector<Faults> faults = {unknown, mistyped};
  if (any(faults) || scopes.empty()) {
    refuse(ErrorKind::kInput, "not the trained parts of a model", file.path(),
           scopes.empty() ? "no tensor of one" : describe(faults),
           "float32 tensors of projector, vision tower or language model",
           "take the folder as lft train wrote it");
  }
  for (const std::string& scope : scopes) {
    for (const std::string& module : family.names.modules_of_scope(scope))
      dir.modules_to_save.push_back(module);
  }
  return dir;
}

}  // namespace lft::hf
