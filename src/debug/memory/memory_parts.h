// Classifies the memory blocks of some steps by the time of allocation and release. Runs nothing.
#pragma once
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/train/memory/leak_watch.h"

namespace lft::debug {

enum class MemoryUse {
  kFrozen,
  kTrainables,
  kMoments,
  kBatch,
  kActivations,
  kGradients,
  kWorkspace,
  kKept,
  kOther
};
constexpr size_t kMemoryUses = 9;
/// "frozen weights", "trainables", ...
const char* use_name(MemoryUse use);

/// The place of a step in the ledger's events.
struct StepMarks {
  int64_t begin = 0, gradients_ready = 0, end = 0;
};

/// Blocks that live as long as the run are given; the others are classified by time. A batch is
/// allocated outside the model before the gradients. Activations are allocated in the forward pass
/// and released after the start of a backward pass. Gradients are allocated in the backward pass
/// and exist at its end. Blocks that outlive their step are kept; all others are workspace.
std::vector<MemoryUse> classify(const std::vector<train::LedgerEntry>& entries,
                                const std::unordered_map<const void*, MemoryUse>& known,
                                const std::vector<StepMarks>& steps);

struct MemoryModule {
  std::string name;  // module path, or "outside the model"
  int64_t bytes = 0, blocks = 0;
};
struct MemoryMoment {
  int64_t event = 0, bytes = 0;
  std::array<int64_t, kMemoryUses> by_use{};
};
struct MemoryPicture {
  MemoryMoment peak;  // of the steps
  std::vector<MemoryModule>
      modules;  // of activations, gradients, workspace and kept blocks at the peak; largest first
  std::vector<MemoryMoment>
      timeline;  // of the steps, reduced to the highest moment of each interval
  std::vector<train::LeakGroup>
      leaks;  // kinds of which every step except the first leaked at least one; largest first
};
MemoryPicture picture(const std::vector<train::LedgerEntry>& entries,
                      const std::vector<MemoryUse>& uses, const std::vector<StepMarks>& steps,
                      size_t points = 1200);

}  // namespace lft::debug
