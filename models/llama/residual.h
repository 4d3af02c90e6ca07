// The residual stream between two layers of a decoder.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace lft::llama {

/// sum + branch, where the next norm does the addition in its own pass. whole() adds them once; the
/// stream is then that sum alone, so that observers of a layer see the value that its readers use.
class ResidualStream {
 public:
  ResidualStream(at::Tensor sum, at::Tensor branch = {})
      : sum_(std::move(sum)), branch_(std::move(branch)) {}
  const at::Tensor& sum() const { return sum_; }
  const at::Tensor& branch() const { return branch_; }  // undefined: none
  const at::Tensor& whole() const {
    if (branch_.defined()) sum_ = sum_ + std::exchange(branch_, {});
    return sum_;
  }
  operator const at::Tensor&() const { return whole(); }

 private:
  mutable at::Tensor sum_, branch_;
};

}  // namespace lft::llama
