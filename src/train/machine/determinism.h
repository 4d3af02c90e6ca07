// Same seed and build, same bytes: settings of LibTorch and CUDA's libraries.
#pragma once
#include "src/io/json.h"

namespace lft::train {

/// For the recipe's train.deterministic: deterministic algorithms (an operation that has none is an
/// error), deterministic cuDNN and oneDNN, no search for the fastest cuDNN kernel, and a cuBLAS
/// workspace that fixes the order of its sums. To be called before the device is opened and threads
/// start: cuBLAS reads its setting once, from the environment. Off: LibTorch's own choices.
void make_deterministic(bool deterministic);

/// Seeds LibTorch's generators on every device; call it once the device is open. A step draws from
/// none of them.
void seed_generators(uint64_t seed);

/// The current settings, for environment.json.
io::Json determinism_json();

}  // namespace lft::train
