#include "src/hf/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "models/family/model.h"
#include "src/base/errors.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"

namespace lft::hf {
namespace {

/// An exponent of all ones is a NaN or an infinity. Whole blocks are checked first: a loop of fixed
/// length without an exit vectorises.
template <class Word>
int64_t first_all_ones(const Word* data, int64_t count, Word exponent) {
  constexpr int64_t kBlock = 4096;
  const auto is_clean = [&](const Word* block) {
    Word found = 0;
    for (int64_t i = 0; i < kBlock; ++i) found |= (block[i] & exponent) == exponent;
    return found == 0;
  };
  int64_t at = 0;
  while (count - at >= kBlock && is_clean(data + at)) at += kBlock;
  for (; at < count; ++at) {
    if ((data[at] & exponent) == exponent) return at;
  }
  return -1;
}

}  // namespace

bool any(const std::vector<Faults>& faults) {
  return std::any_of(faults.begin(), faults.end(),
                     [](const Faults& fault) { return !fault.items.empty(); });
}

std::string describe(const std::vector<Faults>& faults) {
  constexpr size_t kShown = 5;
  std::string text;
  for (const Faults& fault : faults) {
    if (fault.items.empty()) continue;
    text +=
        (text.empty() ? "" : "\n") + std::to_string(fault.items.size()) + " " + fault.label + ":";
    for (size_t i = 0; i < std::min(kShown, fault.items.size()); ++i)
      text += "\n  " + escape_text(fault.items[i]);
    if (fault.items.size() > kShown)
      text += "\n  and " + std::to_string(fault.items.size() - kShown) + " more";
  }
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

bool is_weight_dtype(io::DType dtype) {
  return dtype == io::DType::kF32 || dtype == io::DType::kF16 || dtype == io::DType::kBF16;
}

at::Tensor read_tensor(const io::SafetensorsFile& file, const io::TensorInfo& info) {
  at::Tensor tensor = at::empty(info.shape, at::TensorOptions(to_scalar_type(info.dtype)));
  file.read(info, tensor.data_ptr());
  return tensor;
}

at::Tensor read_rows(const io::SafetensorsFile& file, const io::TensorInfo& info, int64_t first,
                     int64_t count) {
  std::vector<int64_t> shape = info.shape;
  if (!shape.empty()) shape.front() = count;
  at::Tensor rows = at::empty(shape, at::TensorOptions(to_scalar_type(info.dtype)));
  const uint64_t row_bytes = rows.nbytes() / static_cast<uint64_t>(count);
  file.read_range(info, static_cast<uint64_t>(first) * row_bytes, rows.nbytes(), rows.data_ptr());
  return rows;
}

int64_t first_non_finite(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return first_all_ones(static_cast<const uint32_t*>(data), tensor.numel(),
                            uint32_t{0x7f800000});
    case at::kBFloat16:
      return first_all_ones(static_cast<const uint16_t*>(data), tensor.numel(), uint16_t{0x7f80});
    case at::kHalf:
      return first_all_ones(static_cast<const uint16_t*>(data), tensor.numel(), uint16_t{0x7c00});
    default:
      throw Error(ErrorKind::kInternal, "first_non_finite: not F32, BF16 or F16");
  }
}

std::string non_finite_text(const at::Tensor& tensor, int64_t index) {
  const double value = tensor.view(-1)[index].item<double>();
  const std::string name = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return name + " at flat index " + std::to_string(index) + " of " +
         shape_text(tensor.sizes().vec());
}

void refuse_non_finite(const at::Tensor& tensor, const std::string& name, const std::string& file) {
  const int64_t index = first_non_finite(tensor);
  if (index < 0) return;
  refuse(ErrorKind::kInput, "a weight is not finite", file + ": " + name,
         non_finite_text(tensor, index), "finite numbers only",
         "take the file from its source again; a checkpoint with such a weight cannot be used");
}

std::map<std::string, at::Tensor> model_parameters(family::ModelImpl& model) {
  std::map<std::string, at::Tensor> found;
  for (auto& item : model.named_parameters()) {
    if (item.key().find(".adapter.") == std::string::npos) found.emplace(item.key(), item.value());
  }
  std::map<std::string, at::Tensor> parameters;
  for (const family::TensorSpec& spec : model.config.family->layout(model.config).tensors) {
    const auto at = found.find(spec.name);
    if (at == found.end() || at->second.sizes() != at::IntArrayRef(spec.shape)) {
      throw Error(ErrorKind::kInternal,
                  "the model has no parameter " + spec.name + " " + shape_text(spec.shape));
    }
    parameters.emplace(spec.name, at->second);
    found.erase(at);
  }
  for (const auto& [name, tensor] : found) {
    const bool alias = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const auto& item) { return item.second.is_same(tensor); });
    if (!alias) throw Error(ErrorKind::kInternal, "no checkpoint fills the parameter " + name);
  }
  return parameters;
}

std::string pretty_json(const nlohmann::json& json) { return json.dump(2) + "\n"; }

void write_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<io::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(
        {.name = name, .dtype = to_dtype(tensor.scalar_type()), .shape = tensor.sizes().vec()});
  }
  io::SafetensorsWriter writer(path, infos, {{"format", "pt"}});
  for (const io::TensorInfo& info : writer.order()) {
    const at::Tensor host = tensors.at(info.name).detach().to(at::kCPU).contiguous();
    writer.append(host.const_data_ptr(), host.nbytes());
  }
  writer.finish();
}

}  // namespace lft::hf
