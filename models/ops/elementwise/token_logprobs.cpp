#include "models/ops/elementwise/token_logprobs.h"

#include <ATen/core/grad_mode.h>

#include "models/ops/core/cpu_loops.h"
#include "models/ops/core/gemm.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/function.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/token_logprob/token_logprob.h"
#endif

namespace lft::ops {
namespace {

constexpr int64_t kWidenRows = 4096;  // rows of a weight in another dtype that are cast at once

int64_t chunk_rows(const at::Tensor& h_kd, int64_t vocab) {
  return token_logprobs_rows(vocab, !h_kd.device().is_cpu());
}

/// Whether a product with the weight needs a converted copy, which is then made for kWidenRows rows
/// at a time.
bool copies_weight(const at::Tensor& x, const at::Tensor& weight_vd) {
  return weight_vd.scalar_type() != x.scalar_type() || widens_products(x);
}

void write_logits(const at::Tensor& h_kd, const at::Tensor& weight_vd, at::Tensor& logits_kv) {
  for (int64_t v = 0; v < weight_vd.size(0); v += kWidenRows) {
    const int64_t count = std::min(kWidenRows, weight_vd.size(0) - v);
    logits_kv.narrow(1, v, count)
        .copy_(product(h_kd, weight_vd.narrow(0, v, count).to(h_kd.scalar_type()).t()));
  }
}

at::Tensor chunk_logits(const at::Tensor& h_kd, const at::Tensor& weight_vd) {
  if (!copies_weight(h_kd, weight_vd)) return product(h_kd, weight_vd.t());
  at::Tensor logits = at::empty({h_kd.size(0), weight_vd.size(0)}, h_kd.options());
  write_logits(h_kd, weight_vd, logits);
  return logits;
}

at::Tensor through_weight(const at::Tensor& g_kv, const at::Tensor& weight_vd) {
  if (!copies_weight(g_kv, weight_vd)) return product(g_kv, weight_vd);
  const at::ScalarType type = g_kv.scalar_type(),
                       sum_type = widens_products(g_kv) ? at::kFloat : type;
  at::Tensor sum = at::zeros({g_kv.size(0), weight_vd.size(1)}, g_kv.options().dtype(sum_type));
  for (int64_t v = 0; v < weight_vd.size(0); v += kWidenRows) {
    const int64_t count = std::min(kWidenRows, weight_vd.size(0) - v);
    sum.addmm_(g_kv.narrow(1, v, count).to(sum_type),
               weight_vd.narrow(0, v, count).to(type).to(sum_type));
  }
  return sum.to(type);
}

#ifdef LFT_HAVE_CUDA
at::Tensor finish_with_kernel(at::Tensor& logits_kv, const at::Tensor& targets_k,
                              const at::Tensor& scale_k) {
  at::Tensor result = at::empty({logits_kv.size(0)}, logits_kv.options().dtype(at::kFloat));
  const TokenLogprobArgs args{
      .type = *float_type(logits_kv.scalar_type()),
      .rows = logits_kv.size(0),
      .vocab = logits_kv.size(1),
      .logits = logits_kv.mutable_data_ptr(),
      .targets = targets_k.const_data_ptr<int64_t>(),
      .scale = scale_k.defined() ? scale_k.const_data_ptr<float>() : nullptr,
      .result = result.mutable_data_ptr<float>()};
  on_device_of(logits_kv, [&](Stream stream) { token_logprob(args, stream); });
  return result;
}
#endif

/// Log-probabilities of the chunk. With `scale_k` defined, `logits` becomes scale * (onehot -
/// softmax).
at::Tensor finish_chunk(at::Tensor& logits_kv, const at::Tensor& targets_k,
                        const at::Tensor& scale_k) {
#ifdef LFT_HAVE_CUDA
  if (has_kernel(logits_kv)) return finish_with_kernel(logits_kv, targets_k, scale_k);
#endif
  if (!has_loop(logits_kv)) {
    const at::Tensor logs = at::log_softmax(logits_kv, -1, at::kFloat),
                     index = targets_k.unsqueeze(1);
    if (scale_k.defined()) {
      at::Tensor gradient = at::exp(logs).neg_();
      gradient.scatter_add_(1, index, at::ones_like(index, gradient.options()));
      logits_kv = gradient.mul_(scale_k.unsqueeze(1)).to(logits_kv.scalar_type());
    }
    return logs.gather(1, index).squeeze(1);
  }
  const int64_t rows = logits_kv.size(0), vocab = logits_kv.size(1);
  at::Tensor result = at::empty({rows}, logits_kv.options().dtype(at::kFloat));
  with_loop_type(logits_kv.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const float* scale = scale_k.defined() ? scale_k.const_data_ptr<float>() : nullptr;
    parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        result.mutable_data_ptr<float>()[r] =
            loops::token_logprob(logits_kv.mutable_data_ptr<T>() + r * vocab, vocab,
                                 targets_k.const_data_ptr<int64_t>()[r], scale != nullptr,
                                 scale != nullptr ? scale[r] : 0.0f);
      }
    });
  });
  return result;
}

struct TokenLogprobsFunction : torch::autograd::Function<TokenLogprobsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& targets,
                            bool wants_gradient) {
    const at::Tensor h = hidden.to(op_dtype(Op::kLinear, hidden.scalar_type())).contiguous();
    const int64_t rows = h.size(0), step = chunk_rows(h, weight.size(0));
    // Under FP16 the scaled gradient must be rounded, and the loss scale is known in the backward
    // pass only.
    const bool makes_gradient =
        wants_gradient && !weight.requires_grad() && h.scalar_type() != at::kHalf;
    const at::Tensor ones =
        makes_gradient ? at::ones({rows}, h.options().dtype(at::kFloat)) : at::Tensor();
    at::Tensor result = at::empty({rows}, h.options().dtype(at::kFloat)), gradient;
    if (makes_gradient) gradient = at::empty_like(h);
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      at::Tensor logits = chunk_logits(h.narrow(0, r, count), weight);
      result.narrow(0, r, count)
          .copy_(finish_chunk(logits, targets.narrow(0, r, count),
                              makes_gradient ? ones.narrow(0, r, count) : ones));
      if (makes_gradient) gradient.narrow(0, r, count).copy_(through_weight(logits, weight));
    }
    ctx->saved_data["x_dtype"] = static_cast<int64_t>(hidden.scalar_type());
    if (makes_gradient) {
      ctx->save_for_backward({gradient});
    } else if (wants_gradient) {
      ctx->save_for_backward({h, weight, targets});
    }
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto x_dtype = static_cast<at::ScalarType>(ctx->saved_data["x_dtype"].toInt());
    const at::Tensor scale = gradients[0].to(at::kFloat).contiguous();
    if (saved.size() == 1)
      return {(saved[0] * scale.unsqueeze(1)).to(x_dtype), at::Tensor(), at::Tensor(),
              at::Tensor()};
    const at::Tensor &h = saved[0], &weight = saved[1], &targets = saved[2];
    const int64_t rows = h.size(0), step = chunk_rows(h, weight.size(0));
    at::Tensor dh = at::empty_like(h), dw;
    if (ctx->needs_input_grad(1))
      dw = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      at::Tensor g = chunk_logits(h.narrow(0, r, count), weight);
      finish_chunk(g, targets.narrow(0, r, count), scale.narrow(0, r, count));
      dh.narrow(0, r, count).copy_(through_weight(g, weight));
      if (dw.defined()) accumulate(dw, g.t(), h.narrow(0, r, count));
    }
    if (dw.defined() && h.scalar_type() == at::kHalf)
      dw = dw.to(at::kHalf);  // rounded like the cast of a weight under autocast
    return {dh.to(x_dtype), dw.defined() ? dw.to(weight.scalar_type()) : dw, at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

int64_t token_logprobs_rows(int64_t vocab, bool on_gpu) {
  constexpr int64_t kCpuLogits = int64_t{1} << 23;  // 32 MiB of float32
  constexpr int64_t kGpuRows = 1024;
  return on_gpu ? kGpuRows : std::max<int64_t>(1, kCpuLogits / vocab);
}

at::Tensor head_logits(const at::Tensor& hidden, const at::Tensor& weight_vd) {
  const at::NoGradGuard no_grad;
  const at::Tensor h =
      hidden.to(op_dtype(Op::kLinear, hidden.scalar_type())).reshape({-1, hidden.size(-1)});
  std::vector<int64_t> shape = hidden.sizes().vec();
  shape.back() = weight_vd.size(0);
  if (!copies_weight(h, weight_vd)) return product(h, weight_vd.t()).to(at::kFloat).view(shape);
  at::Tensor logits = at::empty({h.size(0), weight_vd.size(0)}, h.options().dtype(at::kFloat));
  write_logits(h, weight_vd, logits);
  return logits.view(shape);
}

at::Tensor token_logprobs(const at::Tensor& hidden_kd, const at::Tensor& weight_vd,
                          const at::Tensor& targets_k) {
  expect_dims(weight_vd, "weight", {{"v"}, {"d"}});
  expect_dims(hidden_kd, "hidden", {{"k"}, {"d", weight_vd.size(1)}});
  expect_dims(targets_k, "targets", {{"k", hidden_kd.size(0)}});
  const bool wants_gradient =
      at::GradMode::is_enabled() && (hidden_kd.requires_grad() || weight_vd.requires_grad());
  return TokenLogprobsFunction::apply(hidden_kd, weight_vd, targets_k.contiguous(), wants_gradient);
}

}  // namespace lft::ops
