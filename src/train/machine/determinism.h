// Settings of LibTorch and CUDA's libraries for bitwise reproducible results with one build.
#pragma once
#include "src/io/json.h"

namespace lft::train {

/// For the recipe's train.deterministic: deterministic algorithms (an op without one is an error),
/// deterministic cuDNN and oneDNN, no cuDNN autotuning, and a cuBLAS workspace that fixes the order
/// of sums. Call it before the device is opened and threads start: cuBLAS reads its setting once,
/// from the environment. false: LibTorch's defaults.
void make_deterministic(bool deterministic);

/// Seeds LibTorch's generators on every device; call it after the device is opened. A step uses
/// none of them.
void seed_generators(uint64_t seed);

/// The current settings, for environment.json.
io::Json determinism_json();

}  // namespace lft::train
