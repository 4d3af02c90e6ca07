#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/rms_norm/rms_norm.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // elements a thread takes at a time: 16 bytes of the narrow types

/// Whether every row of the arrays may be read in packs: a property of the call, so all threads
/// take one way. Null is aligned.
template <class X, class Y, class W>
bool rows_aligned(const RmsNormArgs& args, const X* beside, const X* out, const Y* y) {
  return args.cols % kWidth == 0 &&
         all_aligned<kWidth>(static_cast<const X*>(args.x), static_cast<const W*>(args.w), beside,
                             out, y);
}

// A block a row. The row is read twice; the second time it comes from the caches.
template <class X, class Y, class W>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(RmsNormArgs args, const X* delta, X* sum, Y* y, bool wide) {
  const X* x = static_cast<const X*>(args.x);
  const W* w = static_cast<const W*>(args.w);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t first = row * args.cols;
    float squares = 0;
    for (int64_t c = threadIdx.x * kWidth; c < args.cols; c += kThreads * kWidth) {
      const int live = args.cols - c < kWidth ? int(args.cols - c) : kWidth;
      Pack<X, kWidth> value;
      value.load(x + first + c, live, wide);
      if (delta != nullptr) {
        Pack<X, kWidth> more;
        more.load(delta + first + c, live, wide);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          value.value[i] = X(float(value.value[i]) + float(more.value[i]));
        value.store(sum + first + c, live, wide);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares += float(value.value[i]) * float(value.value[i]);
    }
    const float rstd = rsqrtf(block_sum<kThreads>(squares) / float(args.cols) + args.eps);
    if (threadIdx.x == 0) args.rstd[row] = rstd;
    const X* from = delta != nullptr ? sum : x;  // each thread reads back what it wrote itself
    for (int64_t c = threadIdx.x * kWidth; c < args.cols; c += kThreads * kWidth) {
      const int live = args.cols - c < kWidth ? int(args.cols - c) : kWidth;
      Pack<X, kWidth> value;
      Pack<W, kWidth> weight;
      Pack<Y, kWidth> out;
      value.load(from + first + c, live, wide);
      weight.load(w + c, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out.value[i] = Y(float(weight.value[i]) * (float(value.value[i]) * rstd));
      out.store(y + first + c, live, wide);
    }
  }
}

template <class X, class Y, class W>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(RmsNormArgs args, const Y* dy, const X* dsum, X* dx, bool wide) {
  const X* x = static_cast<const X*>(args.x);
  const W* w = static_cast<const W*>(args.w);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t first = row * args.cols;
    float dot = 0;
    for (int64_t c = threadIdx.x * kWidth; c < args.cols; c += kThreads * kWidth) {
      const int live = args.cols - c < kWidth ? int(args.cols - c) : kWidth;
      Pack<X, kWidth> value;
      Pack<W, kWidth> weight;
      Pack<Y, kWidth> grad;
      value.load(x + first + c, live, wide);
      weight.load(w + c, live, wide);
      grad.load(dy + first + c, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        dot += float(weight.value[i]) * float(grad.value[i]) * float(value.value[i]);
    }
    const float rstd = args.rstd[row];
    const float shrink = rstd * rstd * block_sum<kThreads>(dot) / float(args.cols);
    for (int64_t c = threadIdx.x * kWidth; c < args.cols; c += kThreads * kWidth) {
      const int live = args.cols - c < kWidth ? int(args.cols - c) : kWidth;
      Pack<X, kWidth> value, beside;
      Pack<W, kWidth> weight;
      Pack<Y, kWidth> grad;
      value.load(x + first + c, live, wide);
      weight.load(w + c, live, wide);
      grad.load(dy + first + c, live, wide);
      if (dsum != nullptr) beside.load(dsum + first + c, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float share =
            rstd * (float(weight.value[i]) * float(grad.value[i]) - float(value.value[i]) * shrink);
        value.value[i] = X(dsum != nullptr ? float(beside.value[i]) + share : share);
      }
      value.store(dx + first + c, live, wide);
    }
  }
}

/// body(X{}, Y{}, W{}) for the types of the call; FP16 goes with FP16 only.
template <class Body>
void with_types(const RmsNormArgs& args, const Body& body) {
  with_type(args.x_type, [&](auto x) {
    with_type(args.y_type, [&](auto y) {
      constexpr bool half_x = std::is_same_v<decltype(x), __half>,
                     half_y = std::is_same_v<decltype(y), __half>;
      if constexpr (half_x == half_y) {
        with_type(args.w_type, [&](auto w) { body(x, y, w); });
      } else {
        throw Error(ErrorKind::kInternal, "rms_norm: FP16 goes with FP16 only");
      }
    });
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args, const void* delta, void* sum, void* y, Stream stream) {
  if (args.rows == 0 || args.cols == 0) return;
  with_types(args, [&](auto x_type, auto y_type, auto w_type) {
    using X = decltype(x_type);
    using Y = decltype(y_type);
    using W = decltype(w_type);
    const auto* more = static_cast<const X*>(delta);
    auto* total = static_cast<X*>(sum);
    auto* out = static_cast<Y*>(y);
    const bool wide = rows_aligned<X, Y, W>(args, more, total, out);
    launch("rms_norm launch", forward_kernel<X, Y, W>, grid_size(args.rows, 1, 65535), kThreads,
           stream, args, more, total, out, wide);
  });
}

void rms_norm_backward(const RmsNormArgs& args, const void* dy, const void* dsum, void* dx,
                       Stream stream) {
  if (args.rows == 0 || args.cols == 0) return;
  with_types(args, [&](auto x_type, auto y_type, auto w_type) {
    using X = decltype(x_type);
    using Y = decltype(y_type);
    using W = decltype(w_type);
    const auto* beside = static_cast<const X*>(dsum);
    const auto* grad = static_cast<const Y*>(dy);
    auto* out = static_cast<X*>(dx);
    const bool wide = rows_aligned<X, Y, W>(args, beside, out, grad);
    launch("rms_norm backward launch", backward_kernel<X, Y, W>, grid_size(args.rows, 1, 65535),
           kThreads, stream, args, grad, beside, out, wide);
  });
}

}  // namespace lft
