// torch.autocast("cpu", dtype) for plain ops.
#pragma once
#include <ATen/autocast_mode.h>

namespace lft::test {

/// Enables autocast for the CPU during its lifetime.
class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

}  // namespace lft::test
