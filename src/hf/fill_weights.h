// Fills tensors from safetensors files: in pieces of one size over several threads, so that large
// tensors do not delay the others; every file is read in ascending order. Independent of models.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "src/io/safetensors.h"

namespace lft::hf {

struct WeightJob {
  const io::SafetensorsFile* file = nullptr;
  const io::TensorInfo* info = nullptr;  // of a tensor of the file, or of a part of one
  std::string name;                      // for messages
  at::Tensor target;                     // contiguous, of info's shape; F32, BF16 or F16
  int64_t begin = 0;  // the tensor's first element in `target`, which may be a part of
                      // it. A multiple of 8
  std::function<void(const at::Tensor& stored)> take =
      nullptr;  // receives the whole tensor as stored, on the CPU, instead of target
};

struct FillOptions {
  bool check_finite = true;         // checks filled tensors; received ones are always checked
  int64_t piece_bytes = 4'194'304;  // a multiple of 8
  unsigned threads = 0;             // 0: chosen automatically
  bool through_ring = false;        // as for a device, also with targets on the CPU
};

/// All targets are on one device. Converts as Tensor::to does. Allocates a few MiB per thread.
/// Throws kInput naming tensor and flat index, that in the whole tensor, for a non-finite weight,
/// or one beyond the range of F16 for an F16 target; of several faulty jobs the first in `jobs` is
/// named. Returns placed_digest() of the stored bytes of each job.
std::vector<uint64_t> fill_weights(const std::vector<WeightJob>& jobs,
                                   const FillOptions& options = {});

/// The number of threads for reading this many bytes.
unsigned fill_threads(uint64_t bytes);

}  // namespace lft::hf
