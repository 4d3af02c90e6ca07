// Merges an adapter into the weights of a base, shard by shard.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/lora/registry.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_merge.h"
#include "src/hf/model_dir.h"
#include "src/io/safetensors.h"

namespace lft::hf {

/// The planned changes of one base model's weights. Both folders must outlive it.
class Merger {
 public:
  Merger(const ModelDir& base, const AdapterDir& dir, const MergePart& part);

  /// The path of a shard in the merged model's folder, which has no subfolders.
  std::string file_name(size_t file) const;

  /// Writes the index for the files from write(): the base's text if both are equal.
  void write_index(const std::string& out) const;

  /// Writes shard `file` under the same name.
  void write(size_t file, const std::string& out, const std::function<void()>& poll,
             MergeReport& report) const;

 private:
  void list_names();

  /// Then this is the name that is used.
  bool is_in_later_file(size_t file, const std::string& name) const;

  /// A bias after B can be merged only where the layer has a bias.
  void check_biases() const;

  /// The stored tensor that is read for a written tensor.
  const io::TensorInfo& stored_info(const io::SafetensorsFile& source,
                                    const std::string& name) const;

  at::Tensor read(const std::string& canonical) const;

  /// The adapter's change of one stored tensor.
  struct Change {
    std::string name;                          // canonical name of the tensor
    const at::Tensor* full = nullptr;          // replaces the stored tensor; null: it is kept
    const lora::NamedTensors* lora = nullptr;  // merged into it; null: nothing is merged
    double scale = 0;
    bool is_bias = false;
    int64_t first_row = -1;  // of a part of the weight of experts that is stored in parts
  };

  std::optional<Change> change_of(size_t file, const std::string& stored) const;

  /// Processes some rows at a time, with one thread per processor, and writes them in order.
  void write_changed(const Change& change, const io::SafetensorsFile& source,
                     const io::TensorInfo& info, io::DType dtype,
                     io::SafetensorsWriter& writer) const;

  at::Tensor merged_rows(const Change& change, const io::SafetensorsFile& source,
                         const io::TensorInfo& info, int64_t first, int64_t count) const;

  /// The weights of `count` experts in the layout of the file.
  at::Tensor merged_experts(const Change& change, const io::SafetensorsFile& source,
                            const io::TensorInfo& info, int64_t first, int64_t count) const;

  /// Rows of a part of the weight of one expert.
  at::Tensor merged_piece(const Change& change, const io::SafetensorsFile& source,
                          const io::TensorInfo& info, int64_t first, int64_t count) const;

  const ModelDir& base_;
  const AdapterDir& dir_;
  const bool in_float32_;
  const lora::Variant& variant_;
  AdapterTensors tensors_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // of the weights of experts
  std::map<std::pair<size_t, std::string>, std::string> canonical_;
  std::map<std::pair<size_t, std::string>, int64_t> first_rows_;  // of parts of weights of experts
  std::optional<ModelDir::Place> second_table_;  // the embedding or the LM head that no file of the
                                                 // base contains, for a base that untie() separates
};

}  // namespace lft::hf
