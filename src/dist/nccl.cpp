#include "src/dist/nccl.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "kernels/common/error.h"
#include "kernels/common/module_path.h"
#include "src/dist/nccl_module/module.h"

namespace lft::dist {
namespace {

void* find_entry(const char* name) {
  const ModuleEntry entry = module_entry(kNcclModule, name);
  if (entry.function != nullptr) return entry.function;
  refuse(ErrorKind::kResource, "several processes on GPUs need NCCL, and it cannot be opened",
         entry.path, entry.why, "the module that lft's build makes",
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
