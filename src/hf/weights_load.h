// A model with the weights of a folder, or with random ones, and the dtypes of its weights.
#pragma once
#include <memory>
#include <string>

#include "models/ops/weight/sharded.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

at::ScalarType to_scalar_type(io::DType dtype);

io::DType to_dtype(at::ScalarType type);

/// What a recipe's model.base_dtype makes of the decoder layers' linear layers: codes for nf4 and
/// fp8.
ops::BaseStorage base_storage(const std::string& base_dtype);

/// What model.base_dtype: auto holds weights in that are stored so, for products in `compute` on
/// `device`. Weights in fp16 become bf16 on a CPU, where fp16 products are slow, and elsewhere
/// where `compute` is bf16, which would round them so in every product. All others stay: fp16 has
/// not the range of bf16, and neither has the digits of fp32, which norms, the residual stream and
/// the FP32 recovery make use of.
io::DType auto_base_dtype(io::DType stored, at::ScalarType compute, at::Device device);

/// Storage of the other frozen weights (of all, where there are no codes) for products in `compute`
/// on `device`; `notice` gets one line where it differs from what is stored. kUsage for another
/// name.
at::ScalarType choose_base_dtype(const ModelDir& dir, const std::string& base_dtype,
                                 at::ScalarType compute, at::Device device, std::string* notice);

/// How the decoder layers' linear layers are held.
struct BaseForm {
  ops::BaseStorage storage = ops::BaseStorage::kDense;
  std::shared_ptr<ops::ShardMemory> shards = nullptr;  // in slices, over its holders, all of which
                                                       // load the model; null: whole
  std::shared_ptr<const struct ModelDir> in_files = nullptr;  // in the files of the folder that is
                                                              // loaded, read at each use
                                                              // (file_weight.h); null: in memory
};

/// Allocates and fills; tensors convert piece by piece as they are read. With check_finite a
/// non-finite weight is kInput naming tensor and index. With codes for a storage the decoder
/// layers' linear layers are quantised as they are read; the rest has `dtype`. Of what is held in
/// slices each process reads its own, and of codes the whole weights, one after the other. `digest`
/// gets a sha256 that every stored byte of every weight counts in, which is not to be had of
/// weights in files.
family::Model load_model(const ModelDir& dir, at::ScalarType dtype, at::Device device,
                         bool check_finite = true, const BaseForm& base = {},
                         std::string* digest = nullptr);

/// Weights drawn instead of read, for benchmarks: normal with the config's customary deviation of
/// 0.02, norms 1, biases 0; a function of the seed on each device.
family::Model random_model(const family::ModelConfig& config, at::ScalarType dtype,
                           at::Device device, uint64_t seed, const BaseForm& base = {});

}  // namespace lft::hf
