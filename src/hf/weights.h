// What the files of this folder share: tensors out of safetensors files, the search for non-finite
// values, messages that count and name, and the files beside the weights. Not for other folders but
// src/checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "src/io/safetensors.h"

namespace lft::hf {

/// One class of fault with everything found of it. A message gives each class's count and its first
/// five items.
struct Faults {
  std::string label;
  std::vector<std::string> items;
};
bool any(const std::vector<Faults>& faults);
std::string describe(const std::vector<Faults>& faults);    // "2 missing:\n  a [2, 3]\n  b [4]"
std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"

/// Whether weights may have this type: what is stored otherwise needs scales that no family reads.
bool is_weight_dtype(io::DType dtype);
/// The tensor as stored, on the CPU.
at::Tensor read_tensor(const io::SafetensorsFile& file, const io::TensorInfo& info);
/// Some rows of it, of its first dimension.
at::Tensor read_rows(const io::SafetensorsFile& file, const io::TensorInfo& info, int64_t first,
                     int64_t count);
/// Flat index of the first NaN or infinity of a contiguous CPU tensor (F32, BF16, F16), -1 without
/// one.
int64_t first_non_finite(const at::Tensor& tensor);
/// "nan at flat index 7 of [2, 4]", for the index that first_non_finite() gave.
std::string non_finite_text(const at::Tensor& tensor, int64_t index);
/// kInput naming tensor, flat index and value.
void refuse_non_finite(const at::Tensor& tensor, const std::string& name, const std::string& file);

/// Every parameter of the model itself (no adapter's) by canonical name; kInternal unless these are
/// the tensors of its family and nothing else.
std::map<std::string, at::Tensor> model_parameters(family::ModelImpl& model);

/// JSON as transformers and PEFT write it: sorted keys, indent 2, a newline at the end.
std::string pretty_json(const nlohmann::json& json);

/// Bytes of the tensors in the writer's order; `tensors` must hold every name that was declared.
void write_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors);

}  // namespace lft::hf
