// Detects leaks: whether the number of tensors that outlive a step grows from step to step, and
// which ones, before memory runs out and after.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/train/memory/tensor_ledger.h"

namespace lft::train {

/// Tensors of one kind that outlived the steps in which they were allocated.
struct LeakGroup {
  std::string
      what;  // "float [4, 20, 32] of aten::mm in language_model.model.layers.1.mlp (forward)"
  int64_t count = 0, bytes = 0;
};

struct Growth {
  int64_t steps = 0;              // in a row, each with more than the one before
  int64_t bytes = 0;              // growth over these steps
  std::vector<LeakGroup> groups;  // largest first; empty until a step was examined in detail
};

class LeakWatch {
 public:
  explicit LeakWatch(MemoryWatch& watch) : watch_(watch) {}

  /// Call it after every step. Free until something has grown; then the following steps are
  /// examined in detail until the growth stops. Returns true once, when the leak is certain and the
  /// tensors have names. `ahead`: bytes allocated for the next step, which are not a leak of this
  /// one.
  bool step_done(int64_t ahead = 0);
  /// Uninterrupted growth up to now; nullopt: none.
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

/// Blocks allocated after `since` and still alive, grouped by kind, largest first. A kind is an
/// AllocationPlace with its op and shape.
std::vector<LeakGroup> group_held(const std::vector<LedgerEntry>& entries, int64_t since = 0);

}  // namespace lft::train
