// A frozen weight that is read from its file at every use, for a pass over a model that does not
// fit into memory. Reading takes much longer than a small product, so it is not for training.
#pragma once
#include <memory>
#include <mutex>

#include "models/ops/weight/weight.h"
#include "src/hf/expert_slices.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

/// Buffers for reading weights; a buffer is reused once nothing refers to it. Thread-safe.
class ReadBuffers {
 public:
  /// [numel], uninitialised.
  at::Tensor take(int64_t numel, at::TensorOptions options);

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> buffers_;
};

class FileWeight : public ops::CodedWeight {
 public:
  /// The weight [out, in] with this canonical name, or that of one expert of it, read with the
  /// dtype and to the device of the options. Throws kInput at its use if it is not finite.
  FileWeight(std::shared_ptr<const ModelDir> dir, const std::string& name,
             const std::vector<int64_t>& shape_oi, at::TensorOptions options,
             std::shared_ptr<ReadBuffers> buffers, int64_t expert = -1, int64_t experts = 0);

  ops::BaseStorage kind() const override { return ops::BaseStorage::kDense; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override { return {}; }
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Device device() const override { return options_.device(); }
  at::Tensor dense(at::ScalarType dtype) const override;
  /// For few rows (few_rows.h), reading a part of the weight at a time that fits into a core's
  /// cache.
  at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const override;

 private:
  const std::shared_ptr<const ModelDir> dir_;
  const std::string name_;
  ExpertParts stored_;  // one part if it is not that of an expert
  const at::TensorOptions options_;
  const std::shared_ptr<ReadBuffers> buffers_;
};

/// A weight in memory instead of a file.
class HeldWeight : public ops::CodedWeight {
 public:
  explicit HeldWeight(at::Tensor weight_oi);
  ops::BaseStorage kind() const override { return ops::BaseStorage::kDense; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override { return {}; }
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Device device() const override { return weight_.device(); }
  at::Tensor dense(at::ScalarType dtype) const override { return weight_.to(dtype); }
  bool can_alias_as(at::ScalarType dtype) const override { return weight_.scalar_type() == dtype; }

 private:
  const at::Tensor weight_;
};

}  // namespace lft::hf
