// Many small arrays of mixed float types in one allocation, so that a test can place them at
// any alignment and move all at once.
#pragma once
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/float_type.h"
#ifdef LFT_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lft::test {

/// Maximum error of storing a value as `type`: relative, and an absolute term near zero.
inline double rounding(FloatType type) {
  return type == FloatType::kF32 ? 0x1p-24 : type == FloatType::kBF16 ? 0x1p-8 : 0x1p-11;
}
inline double least_rounding(FloatType type) {
  return type == FloatType::kF16 ? 0x1p-25 : 0x1p-120;  // half of FP16's spacing near zero
}

struct Array {
  FloatType type = FloatType::kF32;
  int64_t count = 0, offset = 0;  // offset: bytes from the arena's start
};

class Arena {
 public:
  /// Starts `misaligned` elements after a multiple of 16 bytes; zeros. Returns the array's index.
  size_t add(FloatType type, int64_t count, int64_t misaligned = 0) {
    const auto start =
        static_cast<int64_t>(bytes_.size() + 15) / 16 * 16 + misaligned * float_type_size(type);
    bytes_.resize(start + count * float_type_size(type));
    arrays_.push_back({type, count, start});
    return arrays_.size() - 1;
  }
  size_t put(FloatType type, const std::vector<float>& values, int64_t misaligned = 0) {
    const size_t index = add(type, static_cast<int64_t>(values.size()), misaligned);
    for (size_t i = 0; i < values.size(); ++i) set(index, static_cast<int64_t>(i), values[i]);
    return index;
  }
  void fill_normal(size_t index, uint32_t seed, float sigma) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, sigma);
    for (int64_t i = 0; i < arrays_[index].count; ++i) set(index, i, normal(random));
  }

  void set(size_t index, int64_t i, float value) {
    store_float(arrays_[index].type, data(index), i, value);
  }
  float get(size_t index, int64_t i) const {
    return load_float(arrays_[index].type, bytes_.data() + arrays_[index].offset, i);
  }
  std::vector<float> values(size_t index) const {
    std::vector<float> out;
    for (int64_t i = 0; i < arrays_[index].count; ++i) out.push_back(get(index, i));
    return out;
  }

  const std::vector<Array>& arrays() const { return arrays_; }
  std::vector<uint8_t>& bytes() { return bytes_; }
  void* data(size_t index) { return bytes_.data() + arrays_[index].offset; }

 private:
  std::vector<Array> arrays_;
  std::vector<uint8_t> bytes_;  // operator new aligns to 16 bytes
};

#ifdef LFT_HAVE_CUDA
inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

/// `count` objects in device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& host) : count_(host.size()) {
    ok_ = cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + 1) == cudaSuccess &&
          cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess;
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  T* data() { return data_; }
  bool ok() const { return ok_; }
  /// Waits for the device. Empty if that or the copy fails.
  std::vector<T> to_host() const {
    std::vector<T> host(count_);
    if (cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost) != cudaSuccess)
      host.clear();
    return host;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
  size_t count_ = 0;
  T* data_ = nullptr;
  bool ok_ = false;
};
#endif

}  // namespace lft::test
