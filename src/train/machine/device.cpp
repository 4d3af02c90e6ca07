#include "src/train/machine/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <torch/headeronly/version.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/proc.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/machine/determinism.h"

namespace lft::train {
namespace {

#ifdef LFT_HAVE_CUDA
constexpr bool kHasKernels = true;
#else
constexpr bool kHasKernels = false;
#endif

/// Why the CPU is used.
std::string no_cuda_reason;
/// The index among the visible GPUs, and whether this is one of several processes.
int64_t local_gpu = 0;
bool is_one_of_several = false;

/// The error of the last dlopen.
std::string loader_error() {
  const char* why = dlerror();
  return why == nullptr ? "no reason given" : why;
}

bool stay_on_cpu(const std::string& reason) {
  no_cuda_reason = reason;
  notice("an NVIDIA driver is here, but " + reason + "; using the CPU");
  return false;
}

/// Enables expandable segments in LibTorch's allocator unless the user configured it: on an H200 a
/// small run then used 7% more memory than its tensors, instead of 25%. Processes that share memory
/// on a GPU (train.shard) cannot share such segments.
void let_segments_grow() {
  constexpr const char* kVariable = "PYTORCH_CUDA_ALLOC_CONF";
  if (!is_one_of_several && getenv("PYTORCH_ALLOC_CONF") == nullptr)
    c10::utils::set_env(kVariable, "expandable_segments:True", /*overwrite=*/false);
}

/// Registers LibTorch's CUDA kernels with the dispatcher. Must run before LibTorch is first queried
/// for CUDA, since it caches the answer.
bool open_cuda() {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) == nullptr) {  // kept open
    no_cuda_reason = "there is no NVIDIA driver: " + loader_error();
    return false;
  }
  let_segments_grow();
  if (!kHasKernels) return stay_on_cpu("this build has no CUDA kernels (no nvcc, or LFT_CUDA=OFF)");
  if (dlopen((libtorch_folder() + "/libtorch_cuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return stay_on_cpu("LibTorch's CUDA library cannot be opened: " + loader_error());
  const bool found = at::detail::getCUDAHooks().deviceCount() > 0;
  if (!found) no_cuda_reason = "LibTorch's CUDA library finds no device";
  choose_cuda_libraries();
  return found;
}

/// Of this process, and current in this thread from here on.
at::Device own_gpu(at::DeviceType type) {
  const c10::impl::VirtualGuardImpl devices(type);
  const int64_t count = devices.deviceCount(), index = count == 1 ? 0 : local_gpu;
  if (index >= count) {
    refuse(ErrorKind::kUsage, "this machine has fewer GPUs than processes of the run", "LOCAL_RANK",
           std::to_string(local_gpu), "below " + std::to_string(count),
           "start as many processes as there are GPUs");
  }
  const at::Device device(type, static_cast<c10::DeviceIndex>(index));
  devices.setDevice(device);
  return device;
}

/// The driver's device; empty if the driver does not report it.
DriverDevice device_of(const CudaDriver& driver, at::Device device) {
  const auto index = static_cast<size_t>(device.has_index() ? device.index() : 0);
  return index < driver.devices.size() ? driver.devices[index] : DriverDevice{};
}

/// For a separate backend: the capability of the first GPUs with the same dtypes.
int capability_of_backend(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const auto types = guard.getDeviceCapability(device).capability_data.supported_scalar_types;
  return types.has_BFloat16 ? 80 : types.has_Half ? 53 : 0;
}

std::string cpuinfo(const std::string& key) {
  const std::string value = line_value("/proc/cpuinfo", key);
  return value.starts_with(": ") ? value.substr(2) : "";
}

}  // namespace

at::Device default_device() {
  static const at::Device device = [] {
    bound_cpu_memory();
    if (c10::impl::hasDeviceGuardImpl(at::kPrivateUse1)) return own_gpu(at::kPrivateUse1);
    return open_cuda() ? own_gpu(at::kCUDA) : at::Device(at::kCPU);
  }();
  return device;
}

void choose_cuda_libraries() {
  // Sums of products stay in float32 when cuBLAS splits a long one (models/ops/core/precision.h).
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  // cuDNN attention builds a plan (0.1 s) for every new shape and thread and keeps all of them.
  at::globalContext().setSDPUseCuDNN(false);
}

void take_local_gpu(int64_t local_rank) {
  local_gpu = local_rank;
  is_one_of_several = true;
}

at::Device planned_gpu() { return at::Device(at::kCUDA, 0); }

std::string unused_gpu_reason() {
  default_device();
  return no_cuda_reason;
}

std::string libtorch_folder() {
  link_map* loaded = nullptr;
  void* library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr && dlinfo(library, RTLD_DI_LINKMAP, &loaded) == 0) {
    const std::filesystem::path path = loaded->l_name;
    if (path.has_parent_path()) return path.parent_path().string();
  }
  return LFT_TORCH_LIB_DIR;  // linked into the program
}

DeviceFacts device_facts(at::Device device) {
  DeviceFacts facts;
  facts.gpu = !device.is_cpu();
  if (device.is_cuda()) facts.capability = device_of(probe_driver(), device).capability;
  if (device.is_privateuseone()) facts.capability = capability_of_backend(device);
  if (facts.gpu) return facts;
  const std::string flags = " " + cpuinfo("flags") + " ";
  for (const char* unit : {"amx_bf16", "avx512_bf16"}) {
    if (facts.bf16_unit.empty() && flags.find(" " + std::string(unit) + " ") != std::string::npos)
      facts.bf16_unit = unit;
  }
  return facts;
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {  // a thread's stack
    return system->code() == std::errc::not_enough_memory ||
           system->code() == std::errc::resource_unavailable_try_again;
  }
  if (const auto* own = dynamic_cast<const Error*>(&error))  // a kernel's launch (check_cuda)
    return own->kind() == ErrorKind::kResource && own->info().where == "CUDA";
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  if (torch == nullptr) return false;
  const std::string what = torch->what_without_backtrace();
  const auto says = [&](const char* word) { return what.find(word) != std::string::npos; };
  return says("allocate memory") || says("out of memory") || says("ALLOC_FAILED");
}

void release_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void empty_cache(at::Device device) {
  release_free_memory();
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
}

std::string cpu_model() { return cpuinfo("model name"); }
std::string lft_version() { return LFT_VERSION; }
std::string torch_version() { return TORCH_VERSION; }

io::Json device_json(at::Device device, const CudaDriver& driver) {
  io::Json json = {{"device", device.str()}, {"cpu", cpu_model()}};
  if (!device.is_cuda()) return json;
  const DriverDevice gpu = device_of(driver, device);
  json["gpu"] = gpu.name;
  json["capability"] =
      std::to_string(gpu.capability / 10) + "." + std::to_string(gpu.capability % 10);
  json["driver"] = driver.version;
  json["cuda"] = cuda_text(driver.cuda);
  return json;
}

io::Json device_json(at::Device device) {
  return device_json(device, device.is_cuda() ? probe_driver() : CudaDriver{});
}

io::Json environment_json(at::Device device, bool deterministic) {
  io::Json json = {{"lft", lft_version()},           {"commit", LFT_COMMIT},
                   {"compiler", __VERSION__},        {"flags", LFT_BUILD_FLAGS},
                   {"libtorch", torch_version()},    {"threads", at::get_num_threads()},
                   {"deterministic", deterministic}, {"determinism", determinism_json()}};
  json.update(device_json(device));
  return json;
}

}  // namespace lft::train
