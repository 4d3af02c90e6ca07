// silu(gate) * up (Shazeer 2020, "GLU Variants Improve Transformer"), and its gradients rebuilt
// from gate and up.
#pragma once
#include "kernels/common/float_type.h"
#include "kernels/dropout/dropout.h"

namespace lft {

/// y = silu(gate) * up with silu(z) = z / (1 + exp(-z)). All arrays [n], of one type; y may be gate
/// or up.
void swiglu_ref(FloatType type, const void* gate, const void* up, void* y, int64_t n);
void swiglu(FloatType type, const void* gate, const void* up, void* y, int64_t n, Stream stream);

/// y as above, or null where it is not wanted, and in the same pass dropped = dropout of y
/// (kernels/dropout): the bits that dropout() would make of y. args.add is false; y and dropped are
/// not the same, and may each be gate or up.
void swiglu_dropout_ref(FloatType type, const void* gate, const void* up, void* y, void* dropped,
                        int64_t n, const DropoutArgs& args);
void swiglu_dropout(FloatType type, const void* gate, const void* up, void* y, void* dropped,
                    int64_t n, const DropoutArgs& args, Stream stream);

/// With s = 1 / (1 + exp(-gate)): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s. dgate and
/// dup may each be any of the inputs.
void swiglu_backward_ref(FloatType type, const void* dy, const void* gate, const void* up,
                         void* dgate, void* dup, int64_t n);
void swiglu_backward(FloatType type, const void* dy, const void* gate, const void* up, void* dgate,
                     void* dup, int64_t n, Stream stream);

// References compute in double and round once; kernels in float32, asynchronous, bit-reproducible,
// built with CUDA only. Launch failures are kInternal.
}  // namespace lft
