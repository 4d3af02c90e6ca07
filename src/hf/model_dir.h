// A Hugging Face model directory: its config, its weights (one file or sharded), and the check that
// all tensors are present.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/ops/weight/sharded.h"
#include "src/io/safetensors.h"

namespace lft::hf {

/// Opened and checked from headers alone, except for an LM head that is stored next to the
/// embedding it is tied to. All missing, misshapen or mistyped tensors are one kInput error with
/// names and counts; a warning names tensors that the model does not have.
struct ModelDir {
  std::string path;
  family::ModelConfig config;
  std::vector<io::SafetensorsFile> files;
  std::vector<std::string> file_names;  // relative to the folder
  struct Place {
    size_t file;
    std::string stored_name;
  };
  std::map<std::string, Place> tensors;  // by canonical name
  /// The names in `tensors` of the parts of a weight of experts that is stored in parts, one below
  /// the other, by the weight's name, which is not in `tensors`.
  std::map<std::string, std::vector<std::string>> expert_pieces;
  std::optional<Place> tied_head;            // an LM head that a tied checkpoint stores next to its
                                             // embedding, with the same values
  io::DType stored_dtype = io::DType::kF32;  // dtype of most weights, by bytes

  static ModelDir open(
      const std::string& path);  // also .bin/.pt only: kInput "convert to safetensors"
  static ModelDir config_only(const std::string& path);
  /// config_only(), or if there is no such folder, the shapes of the published checkpoint that
  /// `path` names (known_models.h).
  static ModelDir shapes_of(const std::string& path);
  const io::TensorInfo& info(const Place& place) const {
    return files[place.file].info(place.stored_name);
  }
};

}  // namespace lft::hf
