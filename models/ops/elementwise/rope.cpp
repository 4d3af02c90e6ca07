#include "models/ops/elementwise/rope.h"

#include "models/ops/core/cpu_loops.h"
#include "models/ops/elementwise/function.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/rope/rope.h"
#endif

namespace lft::ops {
namespace {

at::Tensor rotate_with_aten(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            float sign) {
  const at::Tensor wide = x.to(at::kFloat), c = cos.unsqueeze(2), s = sin.unsqueeze(2) * sign;
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = wide.narrow(-1, 0, half), second = wide.narrow(-1, half, half);
  return at::cat({first * c - second * s, second * c + first * s}, -1).to(x.scalar_type());
}

#ifdef LFT_HAVE_CUDA
at::Tensor rotate_with_kernel(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                              float sign) {
  at::Tensor y = at::empty_like(x);
  const RopeArgs args{.type = *float_type(x.scalar_type()),
                      .rows = x.size(0) * x.size(1),
                      .heads = x.size(2),
                      .half = x.size(3) / 2,
                      .positions = x.size(1),
                      .angle_stride = cos.size(0) == 1 ? 0 : x.size(1),
                      .cos = cos.const_data_ptr<float>(),
                      .sin = sin.const_data_ptr<float>(),
                      .sign = sign};
  on_device_of(
      x, [&](Stream stream) { rope(args, x.const_data_ptr(), y.mutable_data_ptr(), stream); });
  return y;
}
#endif

at::Tensor rotate(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                  float sign) {
  const at::Tensor x = input.contiguous();
#ifdef LFT_HAVE_CUDA
  if (has_kernel(x, cos, sin)) return rotate_with_kernel(x, cos, sin, sign);
#endif
  if (!has_loop(x)) return rotate_with_aten(x, cos, sin, sign);
  const int64_t batch = x.size(0), positions = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  const int64_t batch_stride = cos.size(0) == 1 ? 0 : positions * half;
  at::Tensor y = at::empty_like(x);
  with_loop_type(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t width = heads * half * 2;
    parallel_for(batch * positions, kLoopGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t angle = row / positions * batch_stride + row % positions * half;
        const loops::Rotation by{cos.const_data_ptr<float>() + angle,
                                 sin.const_data_ptr<float>() + angle, sign};
        loops::rope(x.const_data_ptr<T>() + row * width, y.mutable_data_ptr<T>() + row * width, by,
                    heads, half);
      }
    });
  });
  return y;
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1.0f);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate(gradients[0], saved[0], saved[1], -1.0f), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rope(const at::Tensor& x_bthe, const at::Tensor& cos, const at::Tensor& sin) {
  expect_dims(x_bthe, "x", {{"b"}, {"t"}, {"h"}, {"e"}});
  expect_dims(cos, "cos",
              {{"b", cos.size(0) == 1 ? 1 : x_bthe.size(0)},
               {"t", x_bthe.size(1)},
               {"e/2", x_bthe.size(3) / 2}});
  expect_dims(sin, "sin", {{"b", cos.size(0)}, {"t", x_bthe.size(1)}, {"e/2", x_bthe.size(3) / 2}});
  return RopeFunction::apply(x_bthe, cos.contiguous(), sin.contiguous());
}

}  // namespace lft::ops
