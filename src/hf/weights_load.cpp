#include "src/hf/weights_load.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string_view>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/ops/weight/expert_weight.h"
#include "src/base/hash.h"
#include "src/hf/expert_slices.h"
#include "src/hf/file_weight.h"
#include "src/hf/fill_weights.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// Linear layers without memory for their weight, by the weight's canonical name.
std::map<std::string, layers::Linear> coded_layers(family::ModelImpl& model) {
  std::map<std::string, layers::Linear> layers;
  for (const lora::LinearSite& site : lora::linear_sites(model)) {
    if (site.layer->weight.is_meta()) layers.emplace(site.name + ".weight", site.layer);
  }
  return layers;
}

/// The quantized, sharded or file storage of coded_layers(), as the model's `base` selects.
class StoredLayers {
 public:
  StoredLayers(family::ModelImpl& model, at::ScalarType dtype, at::Device device,
               const BaseForm& base)
      : layers_(coded_layers(model)), device_(device), base_(base) {
    const auto buffers = std::make_shared<ReadBuffers>();
    c10::intrusive_ptr<ops::ShardedBlocks> blocks;
    if (base.shards)
      blocks = c10::make_intrusive<ops::ShardedBlocks>(base.shards, model.config.text.layers);
    for (const auto& [name, layer] : layers_) {
      const int64_t experts = layer->experts, parts = layer->parts();
      const std::vector<int64_t> shape = {layer->outputs(), layer->weight.size(1)};
      for (int64_t part = 0; part < parts; ++part) {
        if (base.in_files) {
          parts_[name].push_back(c10::make_intrusive<FileWeight>(
              base.in_files, name, shape, at::TensorOptions(dtype).device(device), buffers,
              experts > 0 ? part : -1, experts));
        } else if (base.shards) {
          const auto block = static_cast<int64_t>(std::stoll(name.substr(kLayers.size())));
          parts_[name].push_back(
              c10::make_intrusive<ops::ShardedWeight>(blocks, block, shape, dtype, base.storage));
        }
      }
      parts_[name].resize(static_cast<size_t>(parts));
    }
    if (base.shards) blocks->hold();
    if (base.shards || base.in_files) store();
  }

  bool has(const std::string& name) const { return layers_.contains(name); }
  bool reads_later(const std::string& name) const { return base_.in_files && has(name); }
  /// Whether weights are quantized; random ones are then drawn in float32.
  bool codes() const { return base_.storage != ops::BaseStorage::kDense; }
  /// Stores the weight of a layer, or of one of its experts. Threads may store different ones.
  void take(const std::string& name, size_t part, const at::Tensor& weight_oi) {
    if (base_.shards) return sharded(name, part).take(weight_oi);
    parts_.at(name)[part] = ops::quantize(weight_oi, base_.storage, device_);
  }
  /// Stores a weight with those of all experts.
  void take_all(const std::string& name, const at::Tensor& weight) {
    const std::vector<at::Tensor> parts = weight.chunk(std::ssize(parts_.at(name)));
    for (size_t part = 0; part < parts.size(); ++part) take(name, part, parts[part]);
  }
  /// Sets the target of a stored tensor, which is the weight of a layer or of one of its experts.
  void set(WeightJob& job, size_t part) {
    if (codes()) {
      job.take = [this, name = job.name, part](const at::Tensor& stored) {
        take(name, part, stored);
      };
    } else {
      const auto [first, values] = sharded(job.name, part).elements();
      job.begin = first;
      job.target = values;
    }
  }
  /// Gives the layers their quantized weights, once all are taken; other weights they have already.
  void finish() {
    if (codes() && !base_.shards) store();
  }
  /// The digest sums over all ranks, each of which has read only its slices.
  void join(const std::vector<WeightJob>& jobs, std::vector<uint64_t>& digests) const {
    if (!base_.shards) return;
    std::vector<uint64_t> parts(digests.size(), 0);
    const auto in_parts = [&](size_t i) { return has(jobs[i].name) && !jobs[i].take; };
    for (size_t i = 0; i < jobs.size(); ++i) parts[i] = in_parts(i) ? digests[i] : 0;
    parts = base_.shards->sum(parts);
    for (size_t i = 0; i < jobs.size(); ++i) digests[i] = in_parts(i) ? parts[i] : digests[i];
  }

 private:
  void store() {
    for (const auto& [name, parts] : parts_) {
      layers::Linear layer = layers_.at(name);
      c10::intrusive_ptr<ops::CodedWeight> weight = parts.front();
      if (layer->experts > 0) weight = c10::make_intrusive<ops::ExpertStorage>(parts);
      layer->store(weight);
    }
  }
  ops::ShardedWeight& sharded(const std::string& name, size_t part) const {
    return static_cast<ops::ShardedWeight&>(*parts_.at(name)[part]);
  }

  static constexpr std::string_view kLayers = "language_model.model.layers.";
  const std::map<std::string, layers::Linear> layers_;
  const at::Device device_;
  const BaseForm& base_;
  /// By name: the weight of the layer, or those of its experts.
  std::map<std::string, std::vector<c10::intrusive_ptr<ops::CodedWeight>>> parts_;
};

/// Adds the jobs that fill the weights of the experts of a layer, which are the same in every
/// storage, so that the digest is.
void add_expert_jobs(const ModelDir& dir, const std::string& name, const at::Tensor& parameter,
                     StoredLayers& stored, std::deque<io::TensorInfo>& infos,
                     std::vector<WeightJob>& jobs) {
  const int64_t experts = dir.config.text.experts.count;
  for (int64_t e = 0; e < experts; ++e) {
    const ExpertParts of = expert_parts(dir, name, parameter.sizes().vec(), e, experts);
    const at::Tensor target = ops::expert_rows(parameter, e, experts);
    int64_t row = 0;
    for (size_t i = 0; i < of.parts.size(); ++i) {
      const io::TensorInfo& info = infos.emplace_back(of.parts[i].info);
      WeightJob job{of.parts[i].file, &info, name, target};
      if (stored.has(name) && of.parts.size() == 1 && !of.transposed) {
        stored.set(job, static_cast<size_t>(e));
      } else if (!stored.has(name) && !of.transposed) {
        job.target = target.narrow(0, row, info.shape.front());
        row += info.shape.front();
      } else if (i > 0) {
        job.take = [](const at::Tensor&) {};  // read with the first part; for the digest
      } else if (stored.has(name)) {
        job.take = [&stored, of, name, e](const at::Tensor& first) {
          stored.take(name, static_cast<size_t>(e), of.whole(first));
        };
      } else {
        job.take = [target, of](const at::Tensor& first) {
          at::Tensor(target).copy_(of.whole(first));
        };
      }
      jobs.push_back(std::move(job));
    }
  }
}

/// The storage with which a family builds its layers.
ops::BaseStorage built(const BaseForm& base) {
  return base.shards || base.in_files ? ops::BaseStorage::kElsewhere : base.storage;
}

/// The dtypes of weights; a recipe can use those that have a name there.
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
    *notice = "the frozen weights are stored in " + dtype_label(stored) + " and loaded as " +
              dtype_label(chosen) + reason;
  }
  return to_scalar_type(chosen);
}

family::Model load_model(const ModelDir& dir, at::ScalarType dtype, at::Device device,
                         bool check_finite, const BaseForm& base, std::string* digest) {
  family::Model model = dir.config.family->build(dir.config, dtype, device, built(base));
  StoredLayers stored(*model, dtype, device, base);
  const std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  std::vector<WeightJob> jobs;
  std::deque<io::TensorInfo> infos;  // of parts of tensors
  for (const auto& [name, parameter] : parameters) {
    if (stored.reads_later(name)) continue;
    const auto at = dir.tensors.find(name);
    if (at == dir.tensors.end() && !dir.expert_pieces.contains(name))
      throw Error(ErrorKind::kInternal,
                  "load_model: the directory was opened without weights: " + name);
    if (dir.config.family->names.is_expert_weight(name)) {
      add_expert_jobs(dir, name, parameter.detach(), stored, infos, jobs);
      continue;
    }
    WeightJob job{&dir.files[at->second.file], &dir.info(at->second), name, parameter.detach()};
    if (stored.has(name)) stored.set(job, /*part=*/0);
    jobs.push_back(std::move(job));
  }
  std::vector<uint64_t> digests = fill_weights(jobs, {.check_finite = check_finite});
  stored.join(jobs, digests);
  stored.finish();
  if (digest == nullptr) return model;
  Sha256 hash;
  for (size_t i = 0; i < jobs.size(); ++i)
    hash.update(jobs[i].name + " " + std::to_string(digests[i]) + "\n");
  *digest = hash.hex();
  return model;
}

family::Model random_model(const family::ModelConfig& config, at::ScalarType dtype,
                           at::Device device, uint64_t seed, const BaseForm& base) {
  const at::NoGradGuard no_grad;
  family::Model model = config.family->build(config, dtype, device, built(base));
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  StoredLayers stored(*model, dtype, device, base);
  const at::ScalarType drawn = stored.codes() ? at::kFloat : dtype;
  for (auto& [name, parameter] : model_parameters(*model)) {
    if (stored.has(name)) {
      stored.take_all(name, at::empty(parameter.sizes(), at::TensorOptions(drawn).device(device))
                                .normal_(0, 0.02, generator));
    } else if (parameter.dim() > 1) {
      at::Tensor(parameter).normal_(0, 0.02, generator);
    } else {
      at::Tensor(parameter).fill_(name.ends_with("bias") || name.ends_with("class_embedding") ? 0
                                                                                              : 1);
    }
  }
  if (base.shards) {  // the others read the slices as soon as they are told
    if (!device.is_cpu())
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
    base.shards->sum({});
  }
  stored.finish();
  return model;
}

}  // namespace lft::hf
