// The part of the trainability proof that needs an update: an adapter's A has no gradient before B
// has moved, and must have one after.
#pragma once
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::train {

class AdapterWatch {
 public:
  /// `satisfied` is what a checkpoint kept. One that was not begins again: it then needs one more
  /// update to judge by.
  explicit AdapterWatch(bool satisfied = false) : satisfied_(satisfied) {}
  /// After every step that moved the optimizer: the gradient norms by slot as that step saw them (0
  /// where absent), the factor of the schedule it used, its compute dtype. Once an update with a
  /// learning rate above 0 has moved an adapter's B, the next step that reaches the adapter must
  /// give its A a gradient: kUsage with the names otherwise.
  void step(Optimizer& optimizer, const std::vector<double>& grad_norms, double factor,
            at::ScalarType compute);
  bool satisfied() const { return satisfied_; }

 private:
  struct Adapter {
    std::string name;
    size_t a = SIZE_MAX, b = SIZE_MAX;  // slots
    double moved = 0;  // sum of the learning rates of the updates that moved B: about its size
    bool proven = false;
  };
  void find_adapters(Optimizer& optimizer);

  bool satisfied_;
  std::vector<Adapter> adapters_;
};

}  // namespace lft::train
