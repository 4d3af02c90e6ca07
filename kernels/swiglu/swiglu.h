// silu(gate) * up (Shazeer 2020, "GLU Variants Improve Transformer"), and its gradients, recomputed
// from gate and up.
#pragma once
#include "kernels/common/float_type.h"
#include "kernels/dropout/dropout.h"

namespace lft {

/// All arrays of a call are [n] and of one type.
struct SwigluInput {
  FloatType type = FloatType::kF32;
  int64_t n = 0;
  const void *gate = nullptr, *up = nullptr;
};

/// y = silu(gate) * up with silu(z) = z / (1 + exp(-z)). y may be gate or up.
void swiglu_ref(const SwigluInput& in, void* y);
void swiglu(const SwigluInput& in, void* y, Stream stream);

/// y as above, or null if not needed, and in the same pass dropped = dropout of y
/// (kernels/dropout), bitwise equal to dropout(). args.add is false; y and dropped are different
/// arrays, and each may be gate or up.
void swiglu_dropout_ref(const SwigluInput& in, void* y, void* dropped, const DropoutArgs& args);
void swiglu_dropout(const SwigluInput& in, void* y, void* dropped, const DropoutArgs& args,
                    Stream stream);

/// With s = 1 / (1 + exp(-gate)): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s; and y,
/// unless null, bitwise equal to swiglu() of the same input. dgate, dup and y are three arrays,
/// each of which may be any of the inputs.
void swiglu_backward_ref(const SwigluInput& in, const void* dy, void* dgate, void* dup, void* y);
void swiglu_backward(const SwigluInput& in, const void* dy, void* dgate, void* dup, void* y,
                     Stream stream);

// References compute in double and round once; kernels in float32, asynchronous, bit-reproducible,
// only in builds with CUDA. Launch failures are kInternal.
}  // namespace lft
