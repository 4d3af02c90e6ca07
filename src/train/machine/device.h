// The device of the tensors, and properties of the machine. The binary links LibTorch's CPU library
// only; the CUDA one is opened at run time.
#pragma once
#include <c10/core/Device.h>

#include <exception>
#include <string>

#include "src/io/json.h"
#include "src/train/machine/cuda_driver.h"

namespace lft::train {

/// cuda:0 where a driver, LibTorch's CUDA library and a device are found, else the CPU. Opens the
/// libraries on the first call. A separate backend that is linked in (LibTorch's PrivateUse1)
/// comes before both.
at::Device default_device();
/// Called in the n-th process of a machine before the first call of default_device(), which then
/// returns the n-th GPU, or the only visible one; kUsage when several are visible but no n-th.
void take_local_gpu(int64_t local_rank);
/// The first GPU, which need not exist: for plans.
at::Device planned_gpu();

/// Why default_device() is the CPU, with the loader's message when loading failed; empty when it is
/// a GPU.
std::string unused_gpu_reason();
/// The folder of the LibTorch that this process runs with; it need not be the one of the build.
std::string libtorch_folder();

/// The facts that decide in which dtype a run computes.
struct DeviceFacts {
  bool gpu = false;
  int capability =
      0;  // compute capability of a GPU, 10 * major + minor; 0: the driver does not tell
  std::string bf16_unit;  // what multiplies bf16 matrices fast on a CPU: amx_bf16 or avx512_bf16;
                          // empty: nothing
};
DeviceFacts device_facts(at::Device device);

/// Whether an exception of LibTorch or the standard library is an out-of-memory error.
bool is_out_of_memory(const std::exception& error);

/// Returns free memory of the process to the system, after a phase whose temporaries are not needed
/// again.
void release_free_memory();
/// The same for the device's allocator; only between phases of different sizes, because the memory
/// has to be allocated again.
void empty_cache(at::Device device);

std::string cpu_model();
/// "0.1.0"
std::string lft_version();
std::string torch_version();
/// Properties of a run's device, for the comparison of two runs: "device", "cpu", and of a GPU
/// "gpu" (its name), "capability", "driver" and "cuda".
io::Json device_json(at::Device device, const CudaDriver& driver);
io::Json device_json(at::Device device);  // asks the driver
/// environment.json: versions, build, device, processor, threads.
io::Json environment_json(at::Device device, bool deterministic);

}  // namespace lft::train
