// Common includes of the sources of this folder, whose ops are autograd functions over a kernel,
// CPU loops or ATen. Private to them.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#ifdef LFT_HAVE_CUDA
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

}  // namespace lft::ops
