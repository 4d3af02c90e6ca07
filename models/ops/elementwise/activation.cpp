#include "models/ops/elementwise/activation.h"

#include <c10/util/Exception.h>

#include "models/ops/core/cpu_loops.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/elementwise/function.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/quick_gelu/quick_gelu.h"
#include "kernels/swiglu/swiglu.h"
#endif

namespace lft::ops {
namespace {

#ifdef LFT_HAVE_CUDA
bool kernel_fits(const at::Tensor& a, const at::Tensor& b) {
  return has_kernel(a, b) && a.scalar_type() == b.scalar_type();
}

at::Tensor quick_gelu_with_kernel(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  on_device_of(x, [&](Stream stream) {
    quick_gelu(*float_type(x.scalar_type()), x.const_data_ptr(), y.mutable_data_ptr(), x.numel(),
               stream);
  });
  return y;
}

at::Tensor quick_gelu_gradient_with_kernel(const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor dx = at::empty_like(x);
  on_device_of(x, [&](Stream stream) {
    quick_gelu_backward(*float_type(x.scalar_type()), dy.const_data_ptr(), x.const_data_ptr(),
                        dx.mutable_data_ptr(), x.numel(), stream);
  });
  return dx;
}

SwigluInput kernel_input(const at::Tensor& gate, const at::Tensor& up) {
  return {*float_type(gate.scalar_type()), gate.numel(), gate.const_data_ptr(),
          up.const_data_ptr()};
}

at::Tensor swiglu_with_kernel(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y = at::empty_like(gate);
  on_device_of(
      gate, [&](Stream stream) { swiglu(kernel_input(gate, up), y.mutable_data_ptr(), stream); });
  return y;
}

DroppedGated swiglu_dropout_with_kernel(const at::Tensor& gate, const at::Tensor& up,
                                        const DropoutMask& mask, bool whole) {
  DroppedGated both{whole ? at::empty_like(gate) : at::Tensor(), at::empty_like(gate)};
  void* y = whole ? both.y.mutable_data_ptr() : nullptr;
  on_device_of(gate, [&](Stream stream) {
    swiglu_dropout(kernel_input(gate, up), y, both.dropped.mutable_data_ptr(),
                   dropout_args(mask, /*add=*/false), stream);
  });
  return both;
}

GatedGradients swiglu_gradients_with_kernel(const at::Tensor& dy, const at::Tensor& gate,
                                            const at::Tensor& up, bool product) {
  GatedGradients of{at::empty_like(gate), at::empty_like(up),
                    product ? at::empty_like(gate) : at::Tensor()};
  void* y = product ? of.product.mutable_data_ptr() : nullptr;
  on_device_of(gate, [&](Stream stream) {
    swiglu_backward(kernel_input(gate, up), dy.const_data_ptr(), of.gate.mutable_data_ptr(),
                    of.up.mutable_data_ptr(), y, stream);
  });
  return of;
}
#endif

/// Calls loop(null T*, first element, count) for parts of all elements, on any
/// thread.
template <class Loop>
void over_parts(const at::Tensor& x, const Loop& loop) {
  with_loop_type(x.scalar_type(), [&](auto* type) {
    parallel_for(x.numel(), kLoopGrain,
                 [&](int64_t begin, int64_t end) { loop(type, begin, end - begin); });
  });
}

at::Tensor quick_gelu_values(const at::Tensor& x) {
#ifdef LFT_HAVE_CUDA
  if (has_kernel(x)) return quick_gelu_with_kernel(x);
#endif
  if (!has_loop(x)) {
    const at::Tensor wide = x.to(at::kFloat);
    return (wide * at::sigmoid(1.702 * wide)).to(x.scalar_type());
  }
  at::Tensor y = at::empty_like(x);
  over_parts(x, [&](auto* type, int64_t first, int64_t n) {
    using T = std::remove_pointer_t<decltype(type)>;
    loops::quick_gelu(x.const_data_ptr<T>() + first, y.mutable_data_ptr<T>() + first, n);
  });
  return y;
}

at::Tensor quick_gelu_gradient(const at::Tensor& dy, const at::Tensor& x) {
#ifdef LFT_HAVE_CUDA
  if (kernel_fits(dy, x)) return quick_gelu_gradient_with_kernel(dy, x);
#endif
  if (!has_loop(x) || !has_loop(dy) || dy.scalar_type() != x.scalar_type()) {
    const at::Tensor wide = x.to(at::kFloat), s = at::sigmoid(1.702 * wide);
    return (dy.to(at::kFloat) * s * (1 + 1.702 * wide * (1 - s))).to(x.scalar_type());
  }
  at::Tensor dx = at::empty_like(x);
  over_parts(x, [&](auto* type, int64_t first, int64_t n) {
    using T = std::remove_pointer_t<decltype(type)>;
    loops::quick_gelu_backward(dy.const_data_ptr<T>() + first, x.const_data_ptr<T>() + first,
                               dx.mutable_data_ptr<T>() + first, n);
  });
  return dx;
}

struct QuickGeluFunction : torch::autograd::Function<QuickGeluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return quick_gelu_values(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {quick_gelu_gradient(gradients[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            Gate kind) {
    ctx->save_for_backward({gate, up});
    ctx->saved_data["kind"] = static_cast<int64_t>(kind);
    return gated_values(gate, up, kind);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto kind = static_cast<Gate>(ctx->saved_data["kind"].toInt());
    const GatedGradients of = gated_gradients(gradients[0], saved[0], saved[1], kind);
    return {of.gate, of.up, at::Tensor()};
  }
};

bool loops_fit(const at::Tensor& a, const at::Tensor& b) {
  return has_loop(a) && has_loop(b) && a.scalar_type() == b.scalar_type();
}

at::Tensor gate_values(const at::Tensor& wide, Gate kind) {
  return kind == Gate::kSilu ? at::silu(wide) : at::gelu(wide, "tanh");
}

/// The gradient of act(gate), given that of the product, in float32.
at::Tensor gate_gradient(const at::Tensor& dy, const at::Tensor& wide, Gate kind) {
  if (kind == Gate::kGelu) return at::gelu_backward(dy, wide, "tanh");
  const at::Tensor s = at::sigmoid(wide);
  return dy * s * (1 + wide * (1 - s));
}

}  // namespace

at::Tensor gated_values(const at::Tensor& gate, const at::Tensor& up, Gate kind) {
  expect_dims_like(up, "up", gate, {"m", gate.size(-1)});
#ifdef LFT_HAVE_CUDA
  if (kind == Gate::kSilu && kernel_fits(gate, up)) return swiglu_with_kernel(gate, up);
#endif
  if (!loops_fit(gate, up))
    return (gate_values(gate.to(at::kFloat), kind) * up.to(at::kFloat)).to(gate.scalar_type());
  at::Tensor y = at::empty_like(gate);
  over_parts(gate, [&](auto* type, int64_t first, int64_t n) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *g = gate.const_data_ptr<T>() + first, *u = up.const_data_ptr<T>() + first;
    T* to = y.mutable_data_ptr<T>() + first;
    kind == Gate::kSilu ? loops::swiglu(g, u, to, n) : loops::geglu(g, u, to, n);
  });
  return y;
}

DroppedGated gated_dropout(const at::Tensor& gate, const at::Tensor& up, const DropoutMask& mask,
                           bool whole, Gate kind) {
  expect_dims_like(up, "up", gate, {"m", gate.size(-1)});
#ifdef LFT_HAVE_CUDA
  if (kind == Gate::kSilu && mask.threshold != 0 && kernel_fits(gate, up))
    return swiglu_dropout_with_kernel(gate, up, mask, whole);
#endif
  at::Tensor y = gated_values(gate, up, kind), dropped = dropout(y, mask);
  return {whole ? y : at::Tensor(), dropped};
}

GatedGradients gated_gradients(const at::Tensor& gradient, const at::Tensor& gate,
                               const at::Tensor& up, Gate kind, bool product) {
  const at::Tensor dy = gradient.contiguous();
#ifdef LFT_HAVE_CUDA
  if (kind == Gate::kSilu && kernel_fits(gate, up) && kernel_fits(dy, gate))
    return swiglu_gradients_with_kernel(dy, gate, up, product);
#endif
  const at::Tensor made = product ? gated_values(gate, up, kind) : at::Tensor();
  if (!loops_fit(gate, up) || !loops_fit(dy, gate)) {
    const at::Tensor d = dy.to(at::kFloat), g = gate.to(at::kFloat);
    return {gate_gradient(d * up.to(at::kFloat), g, kind).to(gate.scalar_type()),
            (d * gate_values(g, kind)).to(up.scalar_type()), made};
  }
  at::Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
  over_parts(gate, [&](auto* type, int64_t first, int64_t n) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *d = dy.const_data_ptr<T>() + first, *g = gate.const_data_ptr<T>() + first,
            *u = up.const_data_ptr<T>() + first;
    T *dg = dgate.mutable_data_ptr<T>() + first, *du = dup.mutable_data_ptr<T>() + first;
    kind == Gate::kSilu ? loops::swiglu_backward(d, g, u, dg, du, n)
                        : loops::geglu_backward(d, g, u, dg, du, n);
  });
  return {dgate, dup, made};
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Gate kind) {
  return GatedFunction::apply(gate.contiguous(), up.contiguous(), kind);
}
at::Tensor quick_gelu(const at::Tensor& x) { return QuickGeluFunction::apply(x.contiguous()); }

bool is_activation(const std::string& name) {
  return name == "gelu" || name == "quick_gelu" || name == "gelu_new" ||
         name == "gelu_pytorch_tanh" || name == "relu" || name == "silu";
}

at::Tensor activation(const std::string& name, const at::Tensor& x) {
  TORCH_INTERNAL_ASSERT(is_activation(name));  // LlavaConfig::parse accepts no other name
  if (name == "quick_gelu") return quick_gelu(x);
  if (name == "relu") return at::relu(x);
  if (name == "silu") return at::silu(x);
  return at::gelu(x, name == "gelu" ? "none" : "tanh");
}

}  // namespace lft::ops
