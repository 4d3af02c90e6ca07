// The parts of lft that peer_driver runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace lft::test {

using Tensors = std::map<std::string, at::Tensor>;

/// The tensors of OUT for those of IN: each is described in <name>_driver.cpp.
Tensors drive_adamw8(const Tensors& in);
Tensors drive_fp8(const Tensors& in);
Tensors drive_nf4(const Tensors& in);
Tensors drive_rule(const Tensors& in);

/// From standard input to standard output: see scaler_driver.cpp.
void drive_scaler();

}  // namespace lft::test
