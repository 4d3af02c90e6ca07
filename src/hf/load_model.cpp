#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "kernels/common/error.h"
#include "models/lora/inject.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"

namespace lft {
namespace {

struct Job {
  const SafetensorsFile* file;
  const TensorInfo* info;
  std::string name;
  at::Tensor target;
  Linear nf4{nullptr};  // where codes are stored instead of target
  at::Device device = at::kCPU;
};

/// A finite F32 or BF16 weight beyond 65,504 does not fit F16.
void refuse_overflow(const at::Tensor& converted, const Job& job) {
  const int64_t index = converted.scalar_type() == at::kHalf ? first_non_finite(converted) : -1;
  if (index < 0) return;
  throw Error(ErrorKind::kInput, {.what = "a weight does not fit fp16",
                                  .where = job.file->path() + ": " + job.name,
                                  .found = std::string(dtype_name(job.info->dtype)) + " at flat index " + std::to_string(index),
                                  .expected = "at most 65504",
                                  .next = "set model.base_dtype to bf16 or fp32"});
}

void fill(Job& job, bool check_finite) {
  const at::ScalarType stored = to_scalar_type(job.info->dtype);
  if (job.nf4) {
    at::Tensor source = at::empty(job.info->shape, at::TensorOptions(stored));
    job.file->read(*job.info, source.data_ptr());
    refuse_non_finite(source, job.name, job.file->path());  // a block with one has no scale
    job.nf4->store_nf4(source.to(at::kFloat), job.device);
    return;
  }
  const bool direct = job.target.scalar_type() == stored && job.target.is_cpu() && job.target.is_contiguous();
  at::Tensor source = direct ? job.target : at::empty(job.info->shape, at::TensorOptions(stored));
  job.file->read(*job.info, source.data_ptr());
  if (check_finite) refuse_non_finite(source, job.name, job.file->path());
  if (direct) return;
  if (job.target.scalar_type() != stored) {
    source = source.to(job.target.scalar_type());
    if (check_finite) refuse_overflow(source, job);
  }
  job.target.copy_(source);
}

/// The error of the earliest tensor wins, so that a message does not depend on timing.
class FirstError {
 public:
  void keep(size_t index) {
    const std::lock_guard lock(mutex_);
    if (index < index_) error_ = std::current_exception(), index_ = index;
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  size_t index_ = SIZE_MAX;
};

void fill_all(std::vector<Job>& jobs, bool check_finite) {
  uint64_t bytes = 0;
  for (const Job& job : jobs) bytes += job.info->bytes;
  std::atomic<size_t> next{0};
  FirstError first_error;
  const auto work = [&] {
    const at::NoGradGuard no_grad;
    for (size_t i = next++; i < jobs.size(); i = next++) {
      try {
        fill(jobs[i], check_finite);
      } catch (...) {
        first_error.keep(i);
        return;
      }
    }
  };
  constexpr uint64_t kWorthThreads = 64u << 20;
  const unsigned threads = bytes < kWorthThreads ? 1 : std::clamp(std::thread::hardware_concurrency(), 2u, 4u);
  std::vector<std::jthread> pool;
  for (unsigned i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  pool.clear();  // joins
  first_error.rethrow();
}

void check_tied_heads(const ModelDir& dir) {
  const ModelDir::Place& embedding = dir.tensors.at("language_model.model.embed_tokens.weight");
  for (const ModelDir::Place& head : dir.tied_heads) {
    const at::Tensor a = read_tensor(dir.files[head.file], dir.info(head));
    const at::Tensor b = read_tensor(dir.files[embedding.file], dir.info(embedding));
    if (a.scalar_type() == b.scalar_type() && a.equal(b)) continue;
    throw Error(ErrorKind::kInput, {.what = "config.json ties the LM head to the embedding, but the weights differ",
                                    .where = dir.files[head.file].path() + ": " + head.stored_name,
                                    .found = "another tensor than " + embedding.stored_name,
                                    .expected = "the same numbers, or no LM head",
                                    .next = "set tie_word_embeddings to false in config.json if the head is meant"});
  }
}

/// Layers without memory for their weight, by the weight's canonical name.
std::map<std::string, Linear> nf4_layers(LlavaImpl& model) {
  std::map<std::string, Linear> layers;
  for (const LinearSite& site : linear_sites(model)) {
    if (site.layer->weight.is_meta()) layers.emplace(site.name + ".weight", site.layer);
  }
  return layers;
}

std::string dtype_label(DType dtype) { return dtype == DType::kF16 ? "fp16" : dtype == DType::kBF16 ? "bf16" : "fp32"; }

}  // namespace

at::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kU8:
      return at::kByte;
    default:
      throw Error(ErrorKind::kInput, {.what = "the type of a tensor is not supported",
                                      .where = "",
                                      .found = dtype_name(dtype),
                                      .expected = "F32, F16, BF16 or U8",
                                      .next = ""});
  }
}

DType to_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kByte:
      return DType::kU8;
    default:
      throw Error(ErrorKind::kInternal, "to_dtype: not F32, F16, BF16 or U8");
  }
}

at::ScalarType choose_base_dtype(const ModelDir& dir, const std::string& base_dtype, at::Device device, std::string* notice) {
  const DType stored = dir.stored_dtype;
  DType chosen = stored;
  std::string reason;
  if (base_dtype == "auto") {
    if (stored == DType::kF16 && device.is_cpu()) {
      chosen = DType::kBF16;
      reason = " (fp16 is slow on a CPU; model.base_dtype: fp16 keeps it)";
    }
  } else if (base_dtype == "nf4") {
    chosen = DType::kBF16;
    reason = ", its decoder's linear layers in nf4";
  } else if (base_dtype == "fp32" || base_dtype == "fp16" || base_dtype == "bf16") {
    chosen = base_dtype == "fp32" ? DType::kF32 : base_dtype == "fp16" ? DType::kF16 : DType::kBF16;
  } else {
    throw Error(ErrorKind::kUsage, {.what = "unknown storage type of the frozen weights",
                                    .where = "model.base_dtype",
                                    .found = base_dtype,
                                    .expected = "auto, bf16, fp16, fp32 or nf4",
                                    .next = ""});
  }
  if (notice != nullptr && (chosen != stored || base_dtype == "nf4")) {
    *notice = "the frozen weights are stored in " + dtype_label(stored) + " and held in " + dtype_label(chosen) + reason;
  }
  return to_scalar_type(chosen);
}

Llava load_llava(const ModelDir& dir, at::ScalarType dtype, at::Device device, bool check_finite, bool nf4) {
  check_tied_heads(dir);
  Llava model(dir.config, dtype, device, nf4);
  const std::map<std::string, Linear> quantised = nf4_layers(*model);
  const std::map<std::string, at::Tensor> parameters = llava_parameters(*model);
  std::vector<Job> jobs;
  for (const auto& [name, parameter] : parameters) {
    const auto at = dir.tensors.find(name);
    if (at == dir.tensors.end()) throw Error(ErrorKind::kInternal, "load_llava: the directory was opened without weights: " + name);
    Job job{&dir.files[at->second.file], &dir.info(at->second), name, parameter.detach()};
    if (const auto layer = quantised.find(name); layer != quantised.end()) {
      job.nf4 = layer->second;
      job.device = device;
    }
    jobs.push_back(std::move(job));
  }
  fill_all(jobs, check_finite);
  return model;
}

Llava random_llava(const LlavaConfig& config, at::ScalarType dtype, at::Device device, uint64_t seed, bool nf4) {
  const at::NoGradGuard no_grad;
  Llava model(config, dtype, device, nf4);
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  const std::map<std::string, Linear> quantised = nf4_layers(*model);
  for (auto& [name, parameter] : llava_parameters(*model)) {
    if (const auto layer = quantised.find(name); layer != quantised.end()) {
      const at::Tensor drawn = at::empty(parameter.sizes(), at::TensorOptions(at::kFloat).device(device)).normal_(0, 0.02, generator);
      Linear(layer->second)->store_nf4(drawn.cpu(), device);
    } else if (parameter.dim() > 1) {
      at::Tensor(parameter).normal_(0, 0.02, generator);
    } else {
      at::Tensor(parameter).fill_(name.ends_with("bias") || name.ends_with("class_embedding") ? 0 : 1);
    }
  }
  return model;
}

}  // namespace lft
