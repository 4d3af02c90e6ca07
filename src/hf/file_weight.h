// A frozen weight that stays in its file and is read at each use, for a pass over a model that
// memory need not hold. Reading costs far more than a small product: not for training.
#pragma once
#include <memory>

#include "models/ops/weight/weight.h"
#include "src/hf/model_dir.h"

namespace lft::hf {

/// Memory that weights are read into one after the other: what nobody holds any more is used again.
class ReadBuffers {
 public:
  /// [numel], uninitialised.
  at::Tensor take(int64_t numel, at::TensorOptions options);

 private:
  std::vector<at::Tensor> buffers_;
};

class FileWeight : public ops::CodedWeight {
 public:
  /// The weight [out, in] of that canonical name; it is of `dtype` and read to `device`. A
  /// non-finite one is kInput at its use.
  FileWeight(std::shared_ptr<const ModelDir> dir, const std::string& name, at::ScalarType dtype,
             at::Device device, std::shared_ptr<ReadBuffers> buffers);

  ops::BaseStorage kind() const override { return ops::BaseStorage::kDense; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override { return {}; }
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Device device() const override { return options_.device(); }
  at::Tensor dense(at::ScalarType dtype) const override;
  /// Of few rows (few_rows.h) with as much of the weight at a time as a core's cache holds.
  at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const override;

 private:
  const io::SafetensorsFile& file() const;
  const io::TensorInfo& info() const;

  const std::shared_ptr<const ModelDir> dir_;
  const std::string name_;
  const at::TensorOptions options_;
  const std::shared_ptr<ReadBuffers> buffers_;
};

/// A weight in memory instead of in a file.
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
