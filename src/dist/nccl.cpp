#include "src/dist/nccl.h"

#include <ATen/ops/from_blob.h>
#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "kernels/common/error.h"
#include "src/dist/nccl_module/module.h"

namespace lft::dist {
namespace {

/// Beside the program, or where it is installed to.
std::string module_path() {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::filesystem::path beside = program.parent_path() / kNcclModule;
  if (std::filesystem::exists(beside, none)) return beside.string();
  return (program.parent_path().parent_path() / "lib" / "lft" / kNcclModule).string();
}

void* find_entry(const char* name) {
  const std::string path = module_path();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = module == nullptr ? nullptr : dlsym(module, name);
  if (entry != nullptr) return entry;
  const char* why = dlerror();
  refuse(ErrorKind::kResource, "several processes on GPUs need NCCL, and it cannot be opened", path,
         why == nullptr ? "no reason given" : why, "the module that lft's build makes",
         "build lft where nvcc and nccl.h are, or train with one process");
}

}  // namespace

bool talks_by_nccl(at::Device device) { return device.is_cuda(); }

GroupPtr open_nccl(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout) {
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
  return reinterpret_cast<NcclEntry>(find_entry(kNcclEntry))(
      prefixed, static_cast<int>(place.rank), static_cast<int>(place.ranks), timeout);
}

std::string share_gpu_memory(const at::Tensor& tensor) {
  GpuHandle handle;
  reinterpret_cast<ShareEntry>(find_entry(kShareEntry))(tensor.data_ptr(), &handle);
  return {std::string(reinterpret_cast<const char*>(&handle.offset), sizeof handle.offset) +
          handle.handle};
}

at::Tensor open_gpu_memory(const std::string& text, int64_t bytes, at::TensorOptions options) {
  GpuHandle handle;
  std::memcpy(&handle.offset, text.data(), sizeof handle.offset);
  handle.handle = text.substr(sizeof handle.offset);
  std::shared_ptr<void> memory;
  reinterpret_cast<OpenEntry>(find_entry(kOpenEntry))(handle, &memory);
  const auto close = [memory](void*) mutable { memory.reset(); };
  return at::from_blob(memory.get(), {bytes}, close, options, options.device());
}

}  // namespace lft::dist
