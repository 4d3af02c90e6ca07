// What every block of memory of some steps was for, by when it was taken and given back, and what
// that adds up to. Runs nothing.
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

/// Where a step lies among the ledger's events.
struct StepMarks {
  int64_t begin = 0, gradients_ready = 0, end = 0;
};

/// What lives as long as the run, by block; the rest goes by time: a batch is taken outside the
/// model before the gradients are there; activations are taken in the forward pass and given back
/// after the begin of a backward pass; gradients are taken in the backward pass and there when it
/// is done; what outlives its step is kept; all else a step takes is workspace.
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
      modules;  // of activations, gradients, workspace and what is kept at the peak; largest first
  std::vector<MemoryMoment> timeline;  // of the steps, thinned: the highest moment of every stretch
  std::vector<train::LeakGroup>
      leaks;  // kinds of which every step but the first left at least one behind; largest first
};
MemoryPicture picture(const std::vector<train::LedgerEntry>& entries,
                      const std::vector<MemoryUse>& uses, const std::vector<StepMarks>& steps,
                      size_t points = 1200);

}  // namespace lft::debug
