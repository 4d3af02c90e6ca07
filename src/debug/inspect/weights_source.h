// The tensors of a directory by canonical name, whatever kind of directory it is. For weights.cpp.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::debug {

struct WeightsSource {
  std::string path, kind;  // kind: adapter, checkpoint, incident, model
  std::vector<io::SafetensorsFile> files;
  struct Place {
    size_t file;
    std::string stored_name;
  };
  std::map<std::string, Place> tensors;

  const io::TensorInfo& info(const std::string& name) const;
  at::Tensor read(const std::string& name) const;  // as stored, on the CPU
};

/// See compare_weights.
WeightsSource open_weights(const std::string& path);

}  // namespace lft::debug
