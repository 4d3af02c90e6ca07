// Helpers of this folder: tensors from safetensors files, the search for non-finite values, and
// error messages with counts and names. Used outside this folder only by src/checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "src/io/safetensors.h"

namespace lft::hf {

/// One kind of fault and all its occurrences. A message contains the count and the first five of
/// each kind.
struct Faults {
  std::string label;
  std::vector<std::string> items;
};
bool any(const std::vector<Faults>& faults);
std::string describe(const std::vector<Faults>& faults);    // "2 missing:\n  a [2, 3]\n  b [4]"
std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"

/// Whether lft reads weights of this dtype; others need scales that no family supports.
bool is_weight_dtype(io::DType dtype);
/// The tensor as stored, on the CPU.
at::Tensor read_tensor(const io::SafetensorsFile& file, const io::TensorInfo& info);
/// Some rows of the tensor (first dimension).
at::Tensor read_rows(const io::SafetensorsFile& file, const io::TensorInfo& info, int64_t first,
                     int64_t count);
/// The flat index of the first NaN or infinity of a contiguous CPU tensor (F32, BF16, F16); -1
/// without one.
int64_t first_non_finite(const at::Tensor& tensor);
/// "nan at flat index 7 of [2, 4]", for an index from first_non_finite().
std::string non_finite_text(const at::Tensor& tensor, int64_t index);
/// kInput naming tensor, flat index and value.
void refuse_non_finite(const at::Tensor& tensor, const std::string& name, const std::string& file);

/// All parameters of the model, without adapters, by canonical name; throws kInternal unless they
/// are exactly the tensors of its family.
std::map<std::string, at::Tensor> model_parameters(family::ModelImpl& model);

/// JSON as transformers and PEFT write it: sorted keys, indent 2, a newline at the end.
std::string pretty_json(const nlohmann::json& json);

/// Writes the tensors in the order of the writer; `tensors` must contain every declared name.
void write_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors);

}  // namespace lft::hf
