// Fills tensors from safetensors files: in pieces of one size over several threads, so that no
// large tensor keeps the others waiting, each file read in ascending order. Knows no model.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::hf {

struct WeightJob {
  const io::SafetensorsFile* file = nullptr;
  const io::TensorInfo* info = nullptr;
  std::string name;   // for messages
  at::Tensor target;  // contiguous, of info's shape; F32, BF16 or F16
  int64_t begin = 0;  // of the tensor's elements the first that `target` gets; then it may be
                      // shorter. A multiple of 8
  std::function<void(const at::Tensor& stored)> take =
      nullptr;  // gets the finite tensor as stored, whole and on the CPU, instead of target
};

struct FillOptions {
  bool check_finite = true;         // of what is filled; what is taken is always checked
  int64_t piece_bytes = 4'194'304;  // a multiple of 8
  unsigned threads = 0;             // 0: as many as pay
  bool through_ring = false;        // as for a device, also where targets are on the CPU
};

/// All targets live on one device. Converts as Tensor::to does. Beside the targets it holds a few
/// MiB a thread. A non-finite weight, or one beyond F16's range for an F16 target, is kInput naming
/// tensor and flat index; of several faulty jobs the first in `jobs` is named.
/// Returns placed_digest() of each job's tensor, or of the part that it fills, as it is stored.
std::vector<uint64_t> fill_weights(const std::vector<WeightJob>& jobs,
                                   const FillOptions& options = {});

/// As many threads as reading so much pays for.
unsigned fill_threads(uint64_t bytes);

}  // namespace lft::hf
