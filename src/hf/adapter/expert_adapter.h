// LoRA on experts in PEFT's files (`target_parameters`). PEFT wraps the module of the experts once
// for each of its parameters, one wrapper around the other, so that the keys of both name the
// module; A is [experts * rank, in] and B [out, rank * experts], in which the experts alternate.
// lft's B is [experts * out, rank].
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/family/checkpoint_names.h"

namespace lft::hf {

/// The canonical module of experts that a wrapper with this canonical name adapts; the name itself
/// if it is no such wrapper. `has_inner`: the file contains a wrapper inside this one.
/// `parameters`: target_parameters, which decide otherwise.
std::string wrapped_experts(const family::CheckpointNames& names, const std::string& wrapper,
                            bool has_inner, const std::vector<std::string>& parameters);
/// The canonical name of the wrapper of a module of experts, given all adapted modules.
std::string expert_wrapper(const family::CheckpointNames& names, const std::string& module,
                           const std::vector<std::string>& adapted);

/// Whether target_parameters contain the parameter with this name in PEFT's spelling.
bool names_parameter(const std::vector<std::string>& parameters, const std::string& name);

at::Tensor peft_expert_b(const at::Tensor& b, int64_t experts);
at::Tensor expert_b_of_peft(const at::Tensor& b, int64_t experts);

}  // namespace lft::hf
