// Where tensors live, and what the machine is. The binary links LibTorch's CPU library only; the CUDA one is opened at run time.
#pragma once
#include <c10/core/Device.h>

#include <string>

#include "src/io/json.h"

namespace lft {

/// cuda:0 where a driver, LibTorch's CUDA library and a device are found, else the CPU. Opens the libraries on the first call.
at::Device default_device();

/// Whether the device multiplies bf16 matrices fast: AVX512-BF16 or AMX on a CPU, compute capability 8.0 on a GPU. `why` names what
/// decided.
bool has_fast_bf16(at::Device device, std::string* why);

std::string cpu_model();
/// "0.1.0"
std::string lft_version();
std::string torch_version();
/// environment.json: versions, build, device, processor, threads.
Json environment_json(at::Device device, bool deterministic);

}  // namespace lft
