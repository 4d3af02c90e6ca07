// How the frozen weights of a model's linear layers are stored.
#pragma once

namespace lft::ops {

/// Storage of the linear layers of the decoder: dense as all other weights, quantized
/// (models/ops/weight/nf4.h, models/ops/weight/fp8.h), or outside this process's memory: sharded
/// over several processes (models/ops/weight/sharded.h) or in the checkpoint's files
/// (src/hf/file_weight.h).
enum class BaseStorage { kDense, kNf4, kFp8, kElsewhere };

}  // namespace lft::ops
