// The part of the trainability proof that needs an update: an adapter's A has no gradient before B
// has changed, and must have one afterwards.
#pragma once
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::train {

class AdapterWatch {
 public:
  /// `satisfied` is the value in a checkpoint. An unsatisfied watch starts again and needs one more
  /// update.
  explicit AdapterWatch(bool satisfied = false) : satisfied_(satisfied) {}
  /// Call it after every step that updated the optimizer, with the step's gradient norms by slot (0
  /// if absent), its schedule factor and its compute dtype. After an update with a learning rate
  /// above 0 has changed an adapter's B, the next step that reaches the adapter must give its A a
  /// gradient: otherwise kUsage with the names.
  void step(Optimizer& optimizer, const std::vector<double>& grad_norms, double factor,
            at::ScalarType compute);
  bool satisfied() const { return satisfied_; }

 private:
  struct Adapter {
    std::string name;
    size_t a = SIZE_MAX, b = SIZE_MAX;  // slots
    double moved = 0;                   // sum of the learning rates of B's updates: about its size
    bool proven = false;
  };
  void find_adapters(Optimizer& optimizer);

  bool satisfied_;
  std::vector<Adapter> adapters_;
};

}  // namespace lft::train
