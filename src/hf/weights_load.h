// A model with the weights of a folder, or with random ones, and the dtypes of its weights.
#pragma once
#include <memory>
#include <string>

#include "models/ops/weight/sharded.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

at::ScalarType to_scalar_type(io::DType dtype);

io::DType to_dtype(at::ScalarType type);

/// The storage of the linear layers of the decoder for a recipe's model.base_dtype: quantized for
/// nf4 and fp8.
ops::BaseStorage base_storage(const std::string& base_dtype);

/// The dtype of model.base_dtype: auto for weights stored as `stored` and products in `compute` on
/// `device`. FP16 weights become BF16 on a CPU, where FP16 products are slow, and elsewhere if
/// `compute` is BF16, to which every product would round them. All others are unchanged: FP16 lacks
/// the range of BF16, and both lack the precision of FP32 that norms, the residual stream and the
/// FP32 recovery use.
io::DType auto_base_dtype(io::DType stored, at::ScalarType compute, at::Device device);

/// The dtype of the other frozen weights (of all, without quantization) for products in `compute`
/// on `device`. `notice` is set to one line if it differs from the stored dtype. Throws kUsage for
/// an unknown name.
at::ScalarType choose_base_dtype(const ModelDir& dir, const std::string& base_dtype,
                                 at::ScalarType compute, at::Device device, std::string* notice);

/// The storage of the linear layers of the decoder.
struct BaseForm {
  ops::BaseStorage storage = ops::BaseStorage::kDense;
  std::shared_ptr<ops::ShardMemory> shards = nullptr;  // sharded over processes that all load the
                                                       // model; null: not sharded
  std::shared_ptr<const struct ModelDir> in_files = nullptr;  // left in the files of this folder
                                                              // and read at each use
                                                              // (file_weight.h); null: in memory
};

/// Allocates the model and reads its weights, which are converted piece by piece. With check_finite
/// a non-finite weight is kInput naming tensor and index. With a quantized storage the linear
/// layers of the decoder are quantized as they are read; the rest has `dtype`. Each process reads
/// only its own slices of sharded weights, but whole weights one by one if they are also quantized.
/// `digest` is set to a sha256 over all stored bytes of all weights; not available for weights left
/// in files.
family::Model load_model(const ModelDir& dir, at::ScalarType dtype, at::Device device,
                         bool check_finite = true, const BaseForm& base = {},
                         std::string* digest = nullptr);

/// Random weights for benchmarks: normal with the usual standard deviation of 0.02, norms 1, biases
/// 0; a function of the seed on each device.
family::Model random_model(const family::ModelConfig& config, at::ScalarType dtype,
                           at::Device device, uint64_t seed, const BaseForm& base = {});

}  // namespace lft::hf
