#include "models/ops/core/precision.h"

#include <c10/core/ScalarType.h>

namespace lft::ops {
namespace {
thread_local at::ScalarType current_dtype = at::kFloat;
thread_local const DropoutPosition* current_position = nullptr;
}  // namespace

at::ScalarType compute_dtype() { return current_dtype; }
ComputeDtypeGuard::ComputeDtypeGuard(at::ScalarType dtype) : previous_(current_dtype) {
  current_dtype = dtype;
}
ComputeDtypeGuard::~ComputeDtypeGuard() { current_dtype = previous_; }

at::ScalarType op_dtype(Op op, at::ScalarType input) {
  const at::ScalarType compute = current_dtype;
  switch (kPrecisionPolicy[static_cast<size_t>(op)].runs_in) {
    case RunsIn::kCompute:
      return compute;
    case RunsIn::kFloat32:
      if (op != Op::kRmsNorm && op != Op::kLayerNorm) return at::kFloat;
      return compute == at::kHalf ? c10::promoteTypes(input, at::kHalf) : compute;
    case RunsIn::kWidest:
      return compute == at::kFloat ? at::kFloat : input;
  }
  return at::kFloat;
}

const DropoutPosition* dropout_position() { return current_position; }
DropoutGuard::DropoutGuard(DropoutPosition position)
    : position_(position), previous_(current_position) {
  current_position = &position_;
}
DropoutGuard::~DropoutGuard() { current_position = previous_; }

}  // namespace lft::ops
