// Shared helpers of the tests of the gradient check and of AdamW.
#pragma once
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lft::test {

constexpr at::ScalarType kGradTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

inline at::Tensor normal(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(seed),
                   at::TensorOptions().dtype(at::kFloat))
      .to(dtype);
}

inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors)
    out.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
  return out;
}

/// Dense and bytewise equal.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.numel() == b.numel() && a.is_contiguous() &&
         b.is_contiguous() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

/// Restores the thread count.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace lft::test
