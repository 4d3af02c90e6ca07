#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>

#include "kernels/common/error.h"
#include "models/lora/inject.h"
#include "src/base/hash.h"
#include "src/hf/fill_weights.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

void check_tied_heads(const ModelDir& dir) {
  const ModelDir::Place& embedding = dir.tensors.at("language_model.model.embed_tokens.weight");
  for (const ModelDir::Place& head : dir.tied_heads) {
    const at::Tensor a = read_tensor(dir.files[head.file], dir.info(head));
    const at::Tensor b = read_tensor(dir.files[embedding.file], dir.info(embedding));
    if (a.scalar_type() == b.scalar_type() && a.equal(b)) continue;
    refuse(ErrorKind::kInput,
           "config.json ties the LM head to the embedding, but the weights differ",
           dir.files[head.file].path() + ": " + head.stored_name,
           "another tensor than " + embedding.stored_name, "the same numbers, or no LM head",
           "set tie_word_embeddings to false in config.json if the head is meant");
  }
}

/// Layers without memory for their weight, by the weight's canonical name.
std::map<std::string, layers::Linear> coded_layers(family::ModelImpl& model) {
  std::map<std::string, layers::Linear> layers;
  for (const lora::LinearSite& site : lora::linear_sites(model)) {
    if (site.layer->weight.is_meta()) layers.emplace(site.name + ".weight", site.layer);
  }
  return layers;
}

/// The types of weights; a recipe knows those that have a name there.
struct WeightType {
  io::DType stored;
  at::ScalarType held;
  const char* name;
};
constexpr WeightType kWeightTypes[] = {{io::DType::kF32, at::kFloat, "fp32"},
                                       {io::DType::kF16, at::kHalf, "fp16"},
                                       {io::DType::kBF16, at::kBFloat16, "bf16"},
                                       {io::DType::kU8, at::kByte, ""}};

std::string dtype_label(io::DType dtype) {
  return std::ranges::find(kWeightTypes, dtype, &WeightType::stored)->name;
}

}  // namespace

at::ScalarType to_scalar_type(io::DType dtype) {
  const auto* found = std::ranges::find(kWeightTypes, dtype, &WeightType::stored);
  if (found != std::end(kWeightTypes)) return found->held;
  refuse(ErrorKind::kInput, "the type of a tensor is not supported", {}, io::dtype_name(dtype),
         "F32, F16, BF16 or U8");
}

io::DType to_dtype(at::ScalarType type) {
  const auto* found = std::ranges::find(kWeightTypes, type, &WeightType::held);
  if (found != std::end(kWeightTypes)) return found->stored;
  throw Error(ErrorKind::kInternal, "to_dtype: not F32, F16, BF16 or U8");
}

ops::BaseStorage base_storage(const std::string& base_dtype) {
  return base_dtype == "nf4"   ? ops::BaseStorage::kNf4
         : base_dtype == "fp8" ? ops::BaseStorage::kFp8
                               : ops::BaseStorage::kDense;
}

io::DType auto_base_dtype(io::DType stored, at::ScalarType compute, at::Device device) {
  const bool narrows = stored == io::DType::kF16 && (device.is_cpu() || compute == at::kBFloat16);
  return narrows ? io::DType::kBF16 : stored;
}

at::ScalarType choose_base_dtype(const ModelDir& dir, const std::string& base_dtype,
                                 at::ScalarType compute, at::Device device, std::string* notice) {
  const io::DType stored = dir.stored_dtype;
  io::DType chosen = stored;
  std::string reason;
  if (base_dtype == "auto") {
    chosen = auto_base_dtype(stored, compute, device);
    reason = device.is_cpu()
                 ? " (fp16 is slow on a CPU; model.base_dtype: fp16 keeps it)"
                 : " (fp16 would be cast in every product; model.base_dtype: fp16 keeps it)";
  } else if (base_storage(base_dtype) != ops::BaseStorage::kDense) {
    chosen = io::DType::kBF16;
    reason = ", its decoder's linear layers in " + base_dtype;
  } else if (base_dtype == "fp32" || base_dtype == "fp16" || base_dtype == "bf16") {
    chosen = base_dtype == "fp32"   ? io::DType::kF32
             : base_dtype == "fp16" ? io::DType::kF16
                                    : io::DType::kBF16;
  } else {
    refuse(ErrorKind::kUsage, "unknown storage type of the frozen weights", "model.base_dtype",
           base_dtype, "auto, bf16, fp16, fp32, nf4 or fp8");
  }
  if (notice != nullptr &&
      (chosen != stored || base_storage(base_dtype) != ops::BaseStorage::kDense)) {
    *notice = "the frozen weights are stored in " + dtype_label(stored) + " and held in " +
              dtype_label(chosen) + reason;
  }
  return to_scalar_type(chosen);
}

family::Model load_model(const ModelDir& dir, at::ScalarType dtype, at::Device device,
                         bool check_finite, ops::BaseStorage storage, std::string* digest) {
  check_tied_heads(dir);
  family::Model model = dir.config.family->build(dir.config, dtype, device, storage);
  const std::map<std::string, layers::Linear> quantised = coded_layers(*model);
  const std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  std::vector<WeightJob> jobs;
  for (const auto& [name, parameter] : parameters) {
    const auto at = dir.tensors.find(name);
    if (at == dir.tensors.end())
      throw Error(ErrorKind::kInternal,
                  "load_model: the directory was opened without weights: " + name);
    WeightJob job{&dir.files[at->second.file], &dir.info(at->second), name, parameter.detach()};
    if (const auto layer = quantised.find(name); layer != quantised.end()) {
      job.take = [coded = layer->second, storage, device](const at::Tensor& stored) {
        layers::Linear(coded)->store(stored, storage, device);
      };
    }
    jobs.push_back(std::move(job));
  }
  const std::vector<uint64_t> digests = fill_weights(jobs, {.check_finite = check_finite});
  if (digest == nullptr) return model;
  Sha256 hash;
  for (size_t i = 0; i < jobs.size(); ++i)
    hash.update(jobs[i].name + " " + std::to_string(digests[i]) + "\n");
  *digest = hash.hex();
  return model;
}

family::Model random_model(const family::ModelConfig& config, at::ScalarType dtype,
                           at::Device device, uint64_t seed, ops::BaseStorage storage) {
  const at::NoGradGuard no_grad;
  family::Model model = config.family->build(config, dtype, device, storage);
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  const std::map<std::string, layers::Linear> quantised = coded_layers(*model);
  for (auto& [name, parameter] : model_parameters(*model)) {
    if (const auto layer = quantised.find(name); layer != quantised.end()) {
      const at::Tensor drawn =
          at::empty(parameter.sizes(), at::TensorOptions(at::kFloat).device(device))
              .normal_(0, 0.02, generator);
      layers::Linear(layer->second)->store(drawn, storage, device);
    } else if (parameter.dim() > 1) {
      at::Tensor(parameter).normal_(0, 0.02, generator);
    } else {
      at::Tensor(parameter).fill_(name.ends_with("bias") || name.ends_with("class_embedding") ? 0
                                                                                              : 1);
    }
  }
  return model;
}

}  // namespace lft::hf
