// Records every block of tensor memory: time, module, op and shape. Too slow for every step: used
// to name a leak and for `lft debug memory`.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/train/memory/memory_watch.h"

namespace lft::train {

struct LedgerEntry {
  const void* block = nullptr;
  int64_t bytes = 0;
  int64_t born = 0, died = -1;  // event numbers, increasing; -1: still allocated
  std::string phase;            // the phase of set_phase()
  AllocationPlace place;
  std::string op;  // the outermost op at its allocation, "aten::linear"; "" if none
  int64_t op_run = 0;
  std::string shape;  // "float [4, 20, 32]"; "" if no op returned it as a full tensor
};

class TensorLedger : public AllocationSink {
 public:
  /// Records from construction on. With `keep_freed` freed blocks are kept with their end; else
  /// they are removed.
  TensorLedger(MemoryWatch& watch, bool keep_freed);
  ~TensorLedger() override;
  TensorLedger(const TensorLedger&) = delete;

  void set_phase(const std::string& phase) { phase_ = phase; }
  int64_t now() const { return events_; }
  /// In order of allocation. Do not call it while another thread computes.
  std::vector<LedgerEntry> entries() const;

  void allocated(const void* block, int64_t bytes) override;
  void freed(const void* block, int64_t bytes) override;

 private:
  struct Ops;
  MemoryWatch& watch_;
  const bool keep_freed_;
  std::string phase_;
  int64_t events_ = 0;
  mutable std::mutex mutex_;
  std::deque<LedgerEntry> done_;
  std::unordered_map<const void*, LedgerEntry> held_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace lft::train
