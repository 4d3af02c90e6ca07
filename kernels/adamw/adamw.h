// AdamW over a list of tensors in one launch: float32 master weights and moments, gradients of any
// float type, learning rates and bias corrections per tensor, and optionally a 16-bit copy of each
// parameter. The kernel reads found_inf and the clip coefficient from the device memory to which
// the gradient check writes them.
#pragma once
#include "kernels/common/shadow.h"
#include "kernels/grad_stats/grad_stats.h"

namespace lft {

/// One tensor. param, exp_avg, exp_avg_sq, grad: `count` elements each, disjoint, aligned for their
/// element types.
struct AdamWItem {
  float *param = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;
  const void* grad = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;  // set by number_chunks()
  double step_size = 0;     // lr / (1 - beta1^t)
  double inverse_root = 1;  // 1 / sqrt(1 - beta2^t)
  double decay = 0;         // lr * weight_decay
  FloatType type = FloatType::kF32;
  ShadowPlace shadow;  // copy of param
};

/// With g = grad * clip, for every element, unless control->found_inf is set (then nothing is
/// written):
///   exp_avg    += (1 - beta1) * (g - exp_avg)
///   exp_avg_sq  = beta2 * exp_avg_sq + (1 - beta2) * g^2
///   param      -= decay * param + step_size * exp_avg / (sqrt(exp_avg_sq) * inverse_root + eps)
/// This is the update of torch.optim.AdamW.
struct AdamWArgs {
  const AdamWItem* items = nullptr;  // [count], in the memory of the executing device
  int64_t count = 0, chunks = 0;     // chunks: the result of number_chunks()
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  const GradControl* control = nullptr;
};

/// Reference implementation: in double, rounded once to float32 when stored.
void adamw_ref(const AdamWArgs& args);
/// The same on the GPU in float32, asynchronous. Elements are independent, so results are
/// bit-reproducible. Only in builds with CUDA. Throws kInternal if the launch fails.
void adamw(const AdamWArgs& args, Stream stream);

/// Sets the constants of update number t (from 1). Item and Args: of this op or of adamw8.
template <class Item, class Args>
void set_rates(Item& item, const Args& args, double lr, double weight_decay, int64_t t) {
  const double updates = static_cast<double>(t);
  item.step_size = lr / (1 - std::pow(args.beta1, updates));
  item.inverse_root = 1 / std::sqrt(1 - std::pow(args.beta2, updates));
  item.decay = lr * weight_decay;
}

/// The constants of one tensor in the form that the float32 update uses.
struct AdamWRates {
  float clip = 1, rest1 = 0, beta2 = 0, rest2 = 0, eps = 0, step_size = 0, inverse_root = 1,
        decay = 0;
};
template <class Item, class Args>
LFT_HOST_DEVICE AdamWRates float_rates(const Item& item, const Args& args, float clip) {
  AdamWRates rates;
  rates.clip = clip;
  rates.rest1 = static_cast<float>(1 - args.beta1);
  rates.beta2 = static_cast<float>(args.beta2);
  rates.rest2 = static_cast<float>(1 - args.beta2);
  rates.eps = static_cast<float>(args.eps);
  rates.step_size = static_cast<float>(item.step_size);
  rates.inverse_root = static_cast<float>(item.inverse_root);
  rates.decay = static_cast<float>(item.decay);
  return rates;
}
/// Updates one element in float32, on the CPU and on the GPU.
LFT_HOST_DEVICE void adamw_element(float& param, float grad, float& exp_avg, float& exp_avg_sq,
                                   const AdamWRates& rates) {
  const float g = grad * rates.clip;
  exp_avg += rates.rest1 * (g - exp_avg);
  exp_avg_sq = rates.beta2 * exp_avg_sq + rates.rest2 * g * g;
  param -= rates.decay * param +
           rates.step_size * exp_avg / (sqrtf(exp_avg_sq) * rates.inverse_root + rates.eps);
}

}  // namespace lft
