// The device of the tensors, and properties of the machine. The binary links only LibTorch's CPU
// library; the CUDA library is opened at run time.
#pragma once
#include <c10/core/Device.h>

#include <exception>
#include <string>

#include "src/io/json.h"
#include "src/train/machine/cuda_driver.h"

namespace lft::train {

/// cuda:0 if a driver, LibTorch's CUDA library and a device are found, else the CPU. Opens the
/// libraries and changes the environment on the first call, which must therefore come before other
/// threads start: getenv() takes no lock. A separate linked backend (LibTorch's PrivateUse1) takes
/// precedence over both.
at::Device default_device();
/// How LibTorch multiplies and attends on an NVIDIA GPU; default_device() calls it for one.
void choose_cuda_libraries();
/// Called in the n-th process of a machine before the first call of default_device(), which then
/// returns the n-th GPU, or the only visible one; kUsage if several are visible but not n.
void take_local_gpu(int64_t local_rank);
/// The first GPU, which need not exist: for memory plans.
at::Device planned_gpu();

/// Why default_device() is the CPU, with the loader's
/// message if loading failed; empty for a GPU.
std::string unused_gpu_reason();
/// The folder of the LibTorch in use, which may differ from that of the build.
std::string libtorch_folder();

/// The properties that determine a run's compute dtype.
struct DeviceFacts {
  bool gpu = false;
  int capability = 0;     // compute capability of a GPU, 10 * major + minor; 0: unknown
  std::string bf16_unit;  // the CPU's fast bf16 matrix unit: amx_bf16 or avx512_bf16;
                          // empty: none
};
DeviceFacts device_facts(at::Device device);

/// Whether an exception of LibTorch or the standard library is an out-of-memory error.
bool is_out_of_memory(const std::exception& error);

/// Returns free memory of the process to the
/// system after a phase with large temporaries.
void release_free_memory();
/// The same for the device's allocator. Use it only between phases of different sizes, because the
/// memory must be allocated again.
void empty_cache(at::Device device);

std::string cpu_model();
/// For example "0.1.0".
std::string lft_version();
std::string torch_version();
/// Properties of a run's device for comparing two runs: "device", "cpu", and for a GPU "gpu" (its
/// name), "capability", "driver" and "cuda".
io::Json device_json(at::Device device, const CudaDriver& driver);
io::Json device_json(at::Device device);  // queries the driver
/// environment.json: versions, build, device, processor, threads.
io::Json environment_json(at::Device device, bool deterministic);

}  // namespace lft::train
