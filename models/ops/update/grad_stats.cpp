#include "models/ops/update/grad_stats.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>

#include "kernels/common/error.h"
#include "models/ops/update/chunked.h"
#include "models/ops/update/cpu_update.h"
#ifdef LFT_HAVE_CUDA
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

[[noreturn]] void misuse(const std::string& what, const std::string& found) {
  throw Error(
      ErrorKind::kInternal,
      {.what = what, .where = "check_gradients", .found = found, .expected = {}, .next = {}});
}

/// The present gradients: themselves if contiguous, or a contiguous copy.
std::vector<at::Tensor> flatten(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> flat(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    if (!gradient.defined()) continue;
    const std::string name = "gradient " + std::to_string(i);
    if (gradient.layout() != at::kStrided || !float_type(gradient.scalar_type())) {
      misuse(name + " is not a dense float32, bfloat16 or float16 tensor", gradient.toString());
    }
    flat[i] = gradient.contiguous();
  }
  return flat;
}

/// The device of the first present gradient; else of the loss; else the CPU. All must agree.
at::Device common_device(const std::vector<at::Tensor>& gradients, const at::Tensor& loss) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    if (first == nullptr) first = &gradient;
    if (gradient.device() != first->device())
      misuse("gradients on two devices", first->device().str() + ", " + gradient.device().str());
  }
  return first != nullptr ? first->device() : loss.defined() ? loss.device() : at::Device(at::kCPU);
}

std::vector<GradTensor> table(const std::vector<at::Tensor>& flat) {
  std::vector<GradTensor> tensors(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    if (!flat[i].defined()) continue;
    tensors[i].data = flat[i].mutable_data_ptr();
    tensors[i].count = flat[i].numel();
    tensors[i].type = *float_type(flat[i].scalar_type());
  }
  return tensors;
}

/// The kernel's computation on the CPU: a chunk is summed in order, independent of threads.
void run_loops(const std::vector<GradTensor>& tensors, const GradStatsArgs& args) {
  std::vector<double> partials(args.chunks);
  for_each_chunk(tensors, [&](int64_t number, const Chunk& chunk) {
    const GradTensor& tensor = tensors[chunk.tensor];
    char* const data = static_cast<char*>(tensor.data) + chunk.first * float_type_size(tensor.type);
    partials[number] = loops::unscale_squares(tensor.type, data, chunk.count, args.inv_scale);
  });
  double squared_norm = 0;
  int32_t first_bad = -1;
  for (int64_t t = 0; t < args.count; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < chunks_of(tensors[t].count); ++i)
      sum += partials[tensors[t].first_chunk + i];
    if (!std::isfinite(sum) && first_bad < 0) first_bad = static_cast<int32_t>(t);
    args.squares[t] = sum;
    squared_norm += sum;
  }
  *args.control = {};
  decide(*args.control, squared_norm, first_bad, args.loss, args.max_norm);
}

#ifdef LFT_HAVE_CUDA
void run_kernel(const std::vector<GradTensor>& tensors, GradStatsArgs args, at::Device device) {
  const at::Tensor there = upload(tensors, device);
  const at::Tensor partials =
      at::empty({args.chunks}, at::TensorOptions().dtype(at::kDouble).device(device));
  args.tensors = static_cast<const GradTensor*>(there.const_data_ptr());
  on_device(device,
            [&](Stream stream) { grad_stats(args, partials.mutable_data_ptr<double>(), stream); });
}
#endif

/// One field of the control as a scalar tensor.
at::Tensor field(const GradVerdict& verdict, size_t offset) {
  return verdict.control.narrow(0, static_cast<int64_t>(offset), sizeof(float))
      .view(at::kFloat)
      .squeeze(0);
}

}  // namespace

GradVerdict check_gradients(const std::vector<at::Tensor>& gradients, double inv_scale,
                            double max_norm, const at::Tensor& loss) {
  at::NoGradGuard no_grad;
  GradStatsArgs args;
  args.inv_scale = static_cast<float>(inv_scale);
  args.max_norm = max_norm;
  if (!(args.inv_scale > 0) || !std::isfinite(args.inv_scale))
    misuse("inv_scale is not a positive number", std::to_string(inv_scale));
  if (!(max_norm >= 0)) misuse("max_norm is negative", std::to_string(max_norm));
  if (loss.defined() && loss.numel() != 1)
    misuse("the loss is not one number", std::to_string(loss.numel()) + " elements");
  const at::Device device = common_device(gradients, loss);
  const std::vector<at::Tensor> flat = flatten(gradients);
  const at::Tensor wide_loss =
      loss.defined() ? loss.detach().to(device, at::kDouble).contiguous() : at::Tensor();

  std::vector<GradTensor> tensors = table(flat);
  args.count = static_cast<int64_t>(tensors.size());
  args.chunks = number_chunks(tensors);
  args.tensors = tensors.data();
  args.loss = loss.defined() ? wide_loss.const_data_ptr<double>() : nullptr;
  GradVerdict verdict;
  verdict.control = at::empty({static_cast<int64_t>(sizeof(GradControl))},
                              at::TensorOptions().dtype(at::kByte).device(device));
  verdict.squares = at::empty({args.count}, at::TensorOptions().dtype(at::kDouble).device(device));
  args.squares = verdict.squares.mutable_data_ptr<double>();
  args.control = static_cast<GradControl*>(verdict.control.mutable_data_ptr());
  if (device.is_cpu()) {
    run_loops(tensors, args);
  } else {
#ifdef LFT_HAVE_CUDA
    run_kernel(tensors, args, device);
#else
    misuse("no kernel for the device in this build", device.str());
#endif
  }
  if (args.inv_scale == 1) return verdict;
  for (size_t i = 0; i < flat.size(); ++i) {
    if (flat[i].defined() && !flat[i].is_same(gradients[i])) gradients[i].copy_(flat[i]);
  }
  return verdict;
}

at::Tensor found_inf(const GradVerdict& verdict) {
  return field(verdict, offsetof(GradControl, found_inf));
}

at::Tensor clip_of(const GradVerdict& verdict) {
  return field(verdict, offsetof(GradControl, clip));
}

GradStats read_stats(const GradVerdict& verdict) {
  const at::Tensor host = at::cat({verdict.control, verdict.squares.view(at::kByte)}).cpu();
  GradControl control;
  std::memcpy(&control, host.const_data_ptr(), sizeof control);
  std::vector<double> squares(verdict.squares.numel());
  if (!squares.empty())
    std::memcpy(squares.data(), host.const_data_ptr<uint8_t>() + sizeof control,
                squares.size() * sizeof(double));
  GradStats stats;
  stats.found_inf = control.found_inf != 0;
  stats.loss_finite = control.loss_bad == 0;
  stats.loss = control.loss;
  stats.first_bad = control.first_bad;
  stats.norm = std::sqrt(control.squared_norm);
  stats.clip = control.clip;
  for (const double sum : squares) stats.norms.push_back(std::sqrt(sum));
  return stats;
}

}  // namespace lft::ops
