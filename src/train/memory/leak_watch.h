// Whether the tensors that outlive a step become more from step to step, and which: a leak, before
// memory runs out and when it has.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/train/memory/tensor_ledger.h"

namespace lft::train {

/// Like tensors that outlived the steps in which they were made.
struct LeakGroup {
  std::string
      what;  // "float [4, 20, 32] of aten::mm in language_model.model.layers.1.mlp (forward)"
  int64_t count = 0, bytes = 0;
};

struct Growth {
  int64_t steps = 0;              // in a row, each with more than the one before
  int64_t bytes = 0;              // over these
  std::vector<LeakGroup> groups;  // largest first; empty while no step was looked at closely
};

class LeakWatch {
 public:
  explicit LeakWatch(MemoryWatch& watch) : watch_(watch) {}

  /// To be called after every step. Costs nothing until something has grown; then the steps that
  /// follow are looked at closely, until it has not. True once: when there is no doubt left, and
  /// the tensors have names. `ahead`: bytes that were taken for the step to come, and are nothing
  /// that this one left.
  bool step_done(int64_t ahead = 0);
  /// What has grown without a break up to now; nullopt: nothing did.
  std::optional<Growth> growth() const;

 private:
  void take_names();

  MemoryWatch& watch_;
  std::optional<TensorLedger> ledger_;
  std::vector<LeakGroup> groups_;
  int64_t steps_ = 0, last_live_ = 0, start_live_ = 0, grown_ = 0, looked_at_ = 0;
  bool told_ = false;
};

/// "12 x float [4, 20, 32] of aten::mm in ... (1.2 MB), and 3 more kinds"
std::string describe_groups(const std::vector<LeakGroup>& groups, size_t most = 3);

/// What was born after `since` and is still held, by kind, largest first. An AllocationPlace with
/// its op and shape is a kind.
std::vector<LeakGroup> group_held(const std::vector<LedgerEntry>& entries, int64_t since = 0);

}  // namespace lft::train
