#include "models/ops/precision.h"

namespace lft {
namespace {
thread_local at::ScalarType current_dtype = at::kFloat;
thread_local const DropoutPosition* current_position = nullptr;
}  // namespace

at::ScalarType compute_dtype() { return current_dtype; }
ComputeDtypeGuard::ComputeDtypeGuard(at::ScalarType dtype) : previous_(current_dtype) { current_dtype = dtype; }
ComputeDtypeGuard::~ComputeDtypeGuard() { current_dtype = previous_; }

const DropoutPosition* dropout_position() { return current_position; }
DropoutGuard::DropoutGuard(DropoutPosition position) : position_(position), previous_(current_position) { current_position = &position_; }
DropoutGuard::~DropoutGuard() { current_position = previous_; }

}  // namespace lft
