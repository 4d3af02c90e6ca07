// Records start and end of every kernel of a process, kernels of CUDA graphs included. CUDA loads
// this library if CUDA_INJECTION64_PATH names it. At exit it writes to the file named by
// LFT_CUDA_TRACE: one line "begin_ns took_ns blocks threads NAME" per kernel, sorted by start
// time, with names as the numbers of the "= NUMBER NAME" lines at the end of the file. For
// scripts/bench/gpu trace.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 8 << 20;

struct Kernel {
  uint64_t begin_ns, took_ns;
  int64_t blocks, threads;
  int name;
};

std::mutex mutex;
std::vector<Kernel> kernels;
std::map<std::string, int> names;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    const int name = names.emplace(kernel->name, static_cast<int>(names.size())).first->second;
    kernels.push_back({kernel->start, kernel->end - kernel->start,
                       int64_t{kernel->gridX} * kernel->gridY * kernel->gridZ,
                       int64_t{kernel->blockX} * kernel->blockY * kernel->blockZ, name});
  }
  std::free(buffer);
}

void write_trace() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const char* path = std::getenv("LFT_CUDA_TRACE");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  const std::lock_guard lock(mutex);
  std::sort(kernels.begin(), kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.begin_ns < b.begin_ns; });
  for (const Kernel& kernel : kernels) {
    std::fprintf(file, "%llu %llu %lld %lld %d\n",
                 static_cast<unsigned long long>(kernel.begin_ns - kernels[0].begin_ns),
                 static_cast<unsigned long long>(kernel.took_ns),
                 static_cast<long long>(kernel.blocks), static_cast<long long>(kernel.threads),
                 kernel.name);
  }
  for (const auto& [name, number] : names) std::fprintf(file, "= %d %s\n", number, name.c_str());
  std::fclose(file);
}

}  // namespace

/// Called once by CUDA during its initialisation. 1: success.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const bool tracing = cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS &&
                       cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS;
  if (!tracing) std::fprintf(stderr, "cuda_trace: CUPTI traces nothing here\n");
  if (tracing) std::atexit(write_trace);
  return 1;
}
