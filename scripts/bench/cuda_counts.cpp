// Counts the CUDA calls of a process: launches, copies, waits. CUDA loads this library if
// CUDA_INJECTION64_PATH names it. At exit it writes the totals as one JSON object to the file
// named by LFT_CUDA_COUNTS. For scripts/bench/gpu: per step = (long run - short run) / steps.
#include <cupti_callbacks.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Kind : uint8_t {
  kUnknown,
  kOther,
  kLaunch,
  kGraphLaunch,
  kCopy,
  kBlockingCopy,
  kSet,
  kWait,
  kAllocation,
  kKinds
};
constexpr const char* kNames[kKinds] = {
    "",     "other", "launches",   "graph_launches", "copies", "blocking_copies",
    "sets", "waits", "allocations"};
constexpr size_t kMostCalls = 2048;  // per domain

std::array<std::atomic<int64_t>, kKinds> counts;
std::atomic<int64_t> waited_ns, called_ns;  // in kWait and kBlockingCopy, in all others
std::array<std::array<std::atomic<uint8_t>, kMostCalls>, 2>
    kinds_of;                               // by domain and call; kUnknown: not seen yet
thread_local bool in_runtime_call = false;  // driver calls inside it belong to it
int64_t began_ns = 0;

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

bool has(const char* name, const char* piece) { return std::strstr(name, piece) != nullptr; }

Kind kind_of(const char* name) {
  if (has(name, "Node") || has(name, "LaunchHostFunc") || has(name, "GetParam")) return kOther;
  if (has(name, "GraphLaunch")) return kGraphLaunch;
  if (has(name, "LaunchKernel") || has(name, "LaunchCooperativeKernel") || has(name, "cuLaunch"))
    return kLaunch;
  if (has(name, "Synchronize")) return kWait;  // for a stream, an event, the context, the device
  if (has(name, "Memcpy")) return has(name, "Async") ? kCopy : kBlockingCopy;
  if (has(name, "Memset")) return kSet;
  if (has(name, "cuMemAlloc") || has(name, "cuMemFree") || has(name, "cudaMalloc") ||
      has(name, "cudaFree"))
    return kAllocation;
  return kOther;
}

bool waits(Kind kind) { return kind == kWait || kind == kBlockingCopy; }

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  if ((!runtime && in_runtime_call) || id >= kMostCalls) return;
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  auto& known = kinds_of[runtime ? 1 : 0][id];
  auto kind = static_cast<Kind>(known.load(std::memory_order_relaxed));
  if (kind == kUnknown) {
    kind = kind_of(call->functionName);
    known.store(kind, std::memory_order_relaxed);
  }
  if (call->callbackSite == CUPTI_API_ENTER) {
    in_runtime_call = runtime;
    counts[kind].fetch_add(1, std::memory_order_relaxed);
    *call->correlationData = static_cast<uint64_t>(now_ns());
    return;
  }
  in_runtime_call = false;
  const int64_t took = now_ns() - static_cast<int64_t>(*call->correlationData);
  (waits(kind) ? waited_ns : called_ns).fetch_add(took, std::memory_order_relaxed);
}

void write_totals() {
  const char* path = std::getenv("LFT_CUDA_COUNTS");
  std::FILE* file = path == nullptr ? stderr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "{");
  for (int kind = kLaunch; kind < kKinds; ++kind) {
    std::fprintf(file, "\"%s\": %lld, ", kNames[kind],
                 static_cast<long long>(counts[static_cast<size_t>(kind)].load()));
  }
  std::fprintf(file, "\"waited_s\": %.9f, \"called_s\": %.9f, \"wall_s\": %.9f}\n",
               1e-9 * static_cast<double>(waited_ns.load()),
               1e-9 * static_cast<double>(called_ns.load()),
               1e-9 * static_cast<double>(now_ns() - began_ns));
  if (file != stderr) std::fclose(file);
}

}  // namespace

/// Called once by CUDA during its initialisation. 1: success.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  began_ns = now_ns();
  CUpti_SubscriberHandle subscriber = nullptr;
  const bool counting =
      cuptiSubscribe(&subscriber, on_call, nullptr) == CUPTI_SUCCESS &&
      cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS &&
      cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API) == CUPTI_SUCCESS;
  if (!counting) std::fprintf(stderr, "cuda_counts: CUPTI counts nothing here\n");
  if (counting) std::atexit(write_totals);
  return 1;
}
