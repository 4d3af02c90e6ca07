#include "src/dist/nccl.h"

#include <dlfcn.h>

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

}  // namespace

bool talks_by_nccl(at::Device device) { return device.is_cuda(); }

GroupPtr open_nccl(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout) {
  const std::string path = module_path();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* open = module == nullptr ? nullptr : dlsym(module, kNcclEntry);
  if (open == nullptr) {
    const char* why = dlerror();
    refuse(ErrorKind::kResource, "several processes on GPUs need NCCL, and it cannot be opened",
           path, why == nullptr ? "no reason given" : why, "the module that lft's build makes",
           "build lft where nvcc and nccl.h are, or train with one process");
  }
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
  return reinterpret_cast<NcclEntry>(open)(prefixed, static_cast<int>(place.rank),
                                           static_cast<int>(place.ranks), timeout);
}

}  // namespace lft::dist
