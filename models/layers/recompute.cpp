#include "models/layers/recompute.h"

#include <ATen/Functions.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "models/base/call.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/precision.h"
#include "models/ops/weight/masters.h"

namespace lft::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local int64_t recompute_every = 0;
thread_local bool offload_inputs = false;

/// The state that a block needs to run again with the same result.
struct BlockRun : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> body;
  variable_list parameters;  // trained parameters
  at::ScalarType compute = at::kFloat;
  std::optional<ops::DropoutPosition> dropout;
  bool direct = false;  // gradients are added directly
  ModulePath path;
  bool trains_x = false;
  std::optional<at::Device> offloaded;  // original device of x if it is in host memory
};

/// Neither copy blocks the host: both are in the stream that computes x and uses it again, and
/// pinned memory is not reused before.
at::Tensor to_host(const at::Tensor& x) {
  const at::Tensor host =
      at::empty_like(x, x.options().device(at::kCPU).pinned_memory(ops::runs_kernels(x.device())));
  return host.copy_(x, /*non_blocking=*/true);
}
at::Tensor from_host(const at::Tensor& host, at::Device device) {
  return host.to(device, host.scalar_type(), /*non_blocking=*/true, /*copy=*/true);
}

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList parameters,
                            const c10::intrusive_ptr<BlockRun>& run) {
    ctx->save_for_backward({run->offloaded ? to_host(x) : x});
    ctx->saved_data["run"] = c10::IValue::make_capsule(run);
    return run->body(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto run =
        c10::static_intrusive_pointer_cast<BlockRun>(ctx->saved_data["run"].toCapsule());
    const at::AutoGradMode with_graph(true);
    const ops::ComputeDtypeGuard compute(run->compute);
    std::optional<ops::DropoutGuard> dropout;
    if (run->dropout) dropout.emplace(*run->dropout);
    const ops::DirectGradientsGuard direct(run->direct);
    const RestoreModulePath path(run->path);
    const RecomputeGuard off(0);
    const at::Tensor kept = ctx->get_saved_variables()[0];
    const at::Tensor x = (run->offloaded ? from_host(kept, *run->offloaded) : kept.detach())
                             .requires_grad_(run->trains_x);
    const at::Tensor y = run->body(x);
    variable_list inputs = run->parameters;
    if (run->trains_x) inputs.insert(inputs.begin(), x);
    variable_list result = torch::autograd::grad({y}, inputs, {gradients[0]},
                                                 /*retain_graph=*/false, /*create_graph=*/false,
                                                 /*allow_unused=*/true);
    if (!run->trains_x) result.insert(result.begin(), at::Tensor());
    result.emplace_back();  // for the argument `run`
    return result;
  }
};

}  // namespace

RecomputeGuard::RecomputeGuard(int64_t every, bool offload)
    : previous_(std::exchange(recompute_every, every)),
      previous_offload_(std::exchange(offload_inputs, offload)) {}
RecomputeGuard::~RecomputeGuard() {
  recompute_every = previous_;
  offload_inputs = previous_offload_;
}
bool recomputes(int64_t block) {
  return recompute_every > 0 && block % recompute_every == 0 && at::GradMode::is_enabled();
}

at::Tensor recompute(const torch::nn::Module& block, const at::Tensor& x,
                     std::function<at::Tensor(const at::Tensor&)> body) {
  auto run = c10::make_intrusive<BlockRun>();
  for (const at::Tensor& parameter : block.parameters()) {
    if (parameter.requires_grad()) run->parameters.push_back(parameter);
  }
  run->trains_x = x.requires_grad();
  if (run->parameters.empty() && !run->trains_x) return body(x);
  run->body = std::move(body);
  run->compute = ops::compute_dtype();
  if (ops::dropout_position() != nullptr) run->dropout = *ops::dropout_position();
  run->direct = ops::direct_gradients();
  run->path = module_path();
  if (offload_inputs) run->offloaded = x.device();
  return RecomputeFunction::apply(x, at::TensorList(run->parameters), run);
}

}  // namespace lft::layers
