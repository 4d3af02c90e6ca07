// Every block of memory that tensors take: when, where in the model, by which op, of what shape.
// Too costly for every step: for a leak's name and for `lft debug memory`.
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
  int64_t born = 0, died = -1;  // numbers of events, which count up; -1: still held
  std::string phase;            // as set_phase() had it
  AllocationPlace place;
  std::string
      op;  // the outermost one that ran when it was taken, "aten::linear"; "" where none did
  int64_t op_run = 0;
  std::string shape;  // "float [4, 20, 32]"; "" where no op gave it out whole
};

class TensorLedger : public AllocationSink {
 public:
  /// Sees what happens from here on. With `keep_freed` entries stay, with their end; else freed
  /// blocks are forgotten.
  TensorLedger(MemoryWatch& watch, bool keep_freed);
  ~TensorLedger() override;
  TensorLedger(const TensorLedger&) = delete;

  void set_phase(const std::string& phase) { phase_ = phase; }
  int64_t now() const { return events_; }
  /// In order of birth. Not while another thread computes.
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
