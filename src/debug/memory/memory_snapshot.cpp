#include "src/debug/memory/memory_snapshot.h"

#include <dlfcn.h>

#include <cstdint>
#include <vector>

namespace lft::debug {
namespace {

// torch/csrc/cuda/memory_snapshot.h: _record_memory_history(enabled, record_context,
// trace_alloc_max_entries, trace_alloc_record_context, record_cpp_context, clearHistory,
// compileContext, globalRecordAllocations, skip_actions) and _memory_snapshot_pickled().
using Record = void (*)(bool, bool, int64_t, bool, bool, bool, bool, bool,
                        const std::vector<std::string>&);
using Snapshot = std::string (*)();
constexpr char kRecord[] =
    "_ZN5torch4cuda22_record_memory_historyEbblbbbbbRKSt6vectorINSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEESaIS7_EE";
constexpr char kSnapshot[] = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev";
constexpr int64_t kMostEntries = 1'000'000;

void snapshot_record(bool on) {
  if (const auto call = reinterpret_cast<Record>(dlsym(RTLD_DEFAULT, kRecord))) {
    call(on, /*record_context=*/on, kMostEntries, /*trace_alloc_record_context=*/on, false, false,
         false, false, {});
  }
}

}  // namespace

CudaSnapshot::CudaSnapshot() { snapshot_record(true); }
CudaSnapshot::~CudaSnapshot() { snapshot_record(false); }

std::string CudaSnapshot::pickled() const {
  const auto call = reinterpret_cast<Snapshot>(dlsym(RTLD_DEFAULT, kSnapshot));
  return call == nullptr ? "" : call();
}

}  // namespace lft::debug
