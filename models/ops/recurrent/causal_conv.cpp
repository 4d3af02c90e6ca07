#include "models/ops/recurrent/causal_conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#include "models/ops/recurrent/device_starts.h"
#include "models/ops/recurrent/recurrent_loops.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/causal_conv/causal_conv.h"
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t count_of(const PackedSequences& sequences) {
  return static_cast<int64_t>(sequences.starts.size()) - 1;
}

/// What precedes every sequence: [s, w - 1, c] of the dtype of x.
at::Tensor inputs_before(const at::Tensor& x_tc, const at::Tensor& first_scw1, int64_t count,
                         int64_t taps) {
  return first_scw1.defined()
             ? first_scw1.detach().transpose(1, 2).to(x_tc.scalar_type()).contiguous()
             : at::zeros({count, taps - 1, x_tc.size(1)}, x_tc.options());
}

/// The last inputs of every sequence: [s, c, w - 1].
at::Tensor inputs_at_end(const at::Tensor& x_tc, const at::Tensor& before_sw1c,
                         const PackedSequences& sequences) {
  const int64_t taps = before_sw1c.size(1) + 1;
  at::Tensor last = at::empty_like(before_sw1c);
  for (int64_t s = 0; s < count_of(sequences); ++s) {
    const int64_t begin = sequences.starts[static_cast<size_t>(s)],
                  count = sequences.starts[static_cast<size_t>(s) + 1] - begin,
                  own = std::min(count, taps - 1);
    at::Tensor to = last[s];
    if (own < taps - 1)
      to.narrow(0, 0, taps - 1 - own).copy_(before_sw1c[s].narrow(0, own, taps - 1 - own));
    to.narrow(0, taps - 1 - own, own).copy_(x_tc.narrow(0, begin + count - own, own));
  }
  return last.transpose(1, 2).contiguous();
}

/// Of ATen ops, under autograd.
at::Tensor composed_conv(const at::Tensor& x_tc, const at::Tensor& weight_cw,
                         const at::Tensor& before_sw1c, const PackedSequences& sequences) {
  const at::ScalarType type = x_tc.scalar_type(),
                       wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weight = weight_cw.to(wide);
  std::vector<at::Tensor> out;
  for (int64_t s = 0; s < count_of(sequences); ++s) {
    const int64_t begin = sequences.starts[static_cast<size_t>(s)],
                  count = sequences.starts[static_cast<size_t>(s) + 1] - begin;
    const at::Tensor all = at::cat({before_sw1c[s], x_tc.narrow(0, begin, count)}).to(wide);
    at::Tensor sum = all.narrow(0, 0, count) * weight.select(1, 0);
    for (int64_t j = 1; j < weight.size(1); ++j)
      sum = sum + all.narrow(0, j, count) * weight.select(1, j);
    out.push_back(at::silu(sum.to(type).to(wide)).to(type));
  }
  return at::cat(out);
}

struct ConvCall {
  at::Tensor x_tc, weight_wc, before_sw1c;  // weight: float32
  const PackedSequences& sequences;
  int64_t taps() const { return weight_wc.size(0); }
};

struct ConvGradientTensors {
  at::Tensor dx_tc, dweight_wc;
};

#ifdef LFT_HAVE_CUDA
bool has_conv_kernel(const at::Tensor& x_tc, int64_t taps) {
  return runs_kernels(x_tc.device()) && float_type(x_tc.scalar_type()).has_value() &&
         taps <= kMostConvTaps;
}

CausalConvArgs kernel_args(const ConvCall& call) {
  return {.type = *float_type(call.x_tc.scalar_type()),
          .tokens = call.x_tc.size(0),
          .channels = call.x_tc.size(1),
          .taps = call.taps(),
          .sequences = count_of(call.sequences),
          .x = call.x_tc.const_data_ptr(),
          .weight = call.weight_wc.const_data_ptr<float>(),
          .starts = call.sequences.starts_s1.const_data_ptr<int32_t>(),
          .before = call.before_sw1c.const_data_ptr()};
}

at::Tensor conv_values_with_kernel(const ConvCall& call) {
  at::Tensor out = at::empty_like(call.x_tc);
  on_device_of(
      out, [&](Stream stream) { causal_conv(kernel_args(call), out.mutable_data_ptr(), stream); });
  return out;
}

ConvGradientTensors conv_gradients_with_kernel(const ConvCall& call, const at::Tensor& dy_tc,
                                               bool trained) {
  const CausalConvArgs args = kernel_args(call);
  const at::TensorOptions wide = call.weight_wc.options();
  const ConvGradientTensors of{at::empty_like(call.x_tc),
                               trained ? at::empty_like(call.weight_wc) : at::Tensor()};
  const at::Tensor workspace = at::empty({trained ? causal_conv_workspace(args) : 0}, wide);
  float* const dweight = trained ? of.dweight_wc.mutable_data_ptr<float>() : nullptr;
  on_device_of(dy_tc, [&](Stream stream) {
    causal_conv_backward(args, dy_tc.const_data_ptr(), of.dx_tc.mutable_data_ptr(), dweight,
                         trained ? workspace.mutable_data_ptr<float>() : nullptr, stream);
  });
  return of;
}
#else
bool has_conv_kernel(const at::Tensor&, int64_t) { return false; }
#endif

bool has_conv_loops(const at::Tensor& x_tc, int64_t taps) {
  return x_tc.device().is_cpu() && has_loop_type(x_tc.scalar_type()) && taps <= loops::kMostTaps;
}

at::Tensor conv_values(const ConvCall& call) {
#ifdef LFT_HAVE_CUDA
  if (has_conv_kernel(call.x_tc, call.taps())) return conv_values_with_kernel(call);
#endif
  const int64_t channels = call.x_tc.size(1), taps = call.taps();
  at::Tensor out = at::empty_like(call.x_tc);
  const at::Tensor sequence_of = at::empty({call.x_tc.size(0)}, at::kLong);
  int64_t* const numbers = sequence_of.mutable_data_ptr<int64_t>();
  for (int64_t s = 0; s < count_of(call.sequences); ++s) {
    const auto at = static_cast<size_t>(s);
    std::fill(numbers + call.sequences.starts[at], numbers + call.sequences.starts[at + 1], s);
  }
  with_loop_type(call.x_tc.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *x = call.x_tc.const_data_ptr<T>(), *before = call.before_sw1c.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    parallel_for(
        call.x_tc.size(0), kLoopGrain / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
          loops::ConvRow<T> row{.rows = {},
                                .weight = call.weight_wc.const_data_ptr<float>(),
                                .out = nullptr,
                                .taps = taps,
                                .channels = channels};
          for (int64_t i = begin; i < end; ++i) {
            const int64_t s = numbers[i], first = call.sequences.starts[static_cast<size_t>(s)];
            for (int64_t j = 0; j < taps; ++j) {
              const int64_t token = i - (taps - 1) + j;
              row.rows[j] = token >= first
                                ? x + token * channels
                                : before + (s * (taps - 1) + token - first + taps - 1) * channels;
            }
            row.out = to + i * channels;
            loops::conv_silu(row);
          }
        });
  });
  return out;
}

/// Some channels of all tokens at a time, so that no sum depends on the number of threads.
ConvGradientTensors conv_gradients(const ConvCall& call, const at::Tensor& dy_tc, bool trained) {
#ifdef LFT_HAVE_CUDA
  if (has_conv_kernel(call.x_tc, call.taps()))
    return conv_gradients_with_kernel(call, dy_tc, trained);
#endif
  const int64_t channels = call.x_tc.size(1), taps = call.taps();
  const ConvGradientTensors of{at::empty_like(call.x_tc),
                               trained ? at::zeros_like(call.weight_wc) : at::Tensor()};
  with_loop_type(call.x_tc.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t blocks = (channels + loops::kConvChannels - 1) / loops::kConvChannels;
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * loops::kConvChannels;
           first < std::min(channels, end * loops::kConvChannels); first += loops::kConvChannels) {
        for (int64_t s = 0; s < count_of(call.sequences); ++s) {
          const int64_t start = call.sequences.starts[static_cast<size_t>(s)],
                        offset = start * channels + first;
          loops::conv_silu_backward(loops::ConvGradients<T>{
              .x = call.x_tc.const_data_ptr<T>() + offset,
              .dy = dy_tc.const_data_ptr<T>() + offset,
              .before = call.before_sw1c.const_data_ptr<T>() + s * (taps - 1) * channels + first,
              .weight = call.weight_wc.const_data_ptr<float>() + first,
              .dx = of.dx_tc.mutable_data_ptr<T>() + offset,
              .dweight = trained ? of.dweight_wc.mutable_data_ptr<float>() + first : nullptr,
              .tokens = call.sequences.starts[static_cast<size_t>(s) + 1] - start,
              .taps = taps,
              .channels = std::min(loops::kConvChannels, channels - first),
              .stride = channels});
        }
      }
    });
  });
  return of;
}

at::Tensor taps_first(const at::Tensor& weight_cw) {
  return weight_cw.detach().t().to(at::kFloat).contiguous();
}

struct ConvFunction : torch::autograd::Function<ConvFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& before, const PackedSequences* sequences) {
    ctx->save_for_backward({x, weight, before, sequences->starts_s1});
    ctx->saved_data["starts"] = sequences->starts;
    return conv_values({x, taps_first(weight), before, *sequences});
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    PackedSequences sequences;
    sequences.starts = ctx->saved_data["starts"].toIntVector();
    sequences.starts_s1 = saved[3];
    const ConvGradientTensors of =
        conv_gradients({saved[0], taps_first(saved[1]), saved[2], sequences},
                       gradients[0].contiguous(), ctx->needs_input_grad(1));
    return {of.dx_tc,
            of.dweight_wc.defined() ? of.dweight_wc.t().to(saved[1].scalar_type()) : at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

ConvResult causal_conv_silu(const at::Tensor& x_tc, const at::Tensor& weight_cw,
                            const PackedSequences& sequences, const at::Tensor& first_scw1,
                            bool last) {
  expect_dims(x_tc, "x", {{"t", sequences.starts.back()}, {"c"}});
  expect_dims(weight_cw, "weight", {{"c", x_tc.size(1)}, {"w"}});
  const int64_t count = count_of(sequences), taps = weight_cw.size(1);
  if (first_scw1.defined())
    expect_dims(first_scw1, "first", {{"s", count}, {"c", x_tc.size(1)}, {"w1", taps - 1}});
  const at::Tensor before = inputs_before(x_tc, first_scw1, count, taps);
  at::Tensor out;
  if (has_conv_loops(x_tc, taps) || has_conv_kernel(x_tc, taps)) {
    PackedSequences own = sequences;
    own.starts_s1 = device_starts(sequences, x_tc.device());
    out = ConvFunction::apply(x_tc.contiguous(), weight_cw, before, &own);
  } else {
    out = composed_conv(x_tc, weight_cw, before, sequences);
  }
  return {out, last ? inputs_at_end(x_tc.detach(), before, sequences) : at::Tensor()};
}

}  // namespace lft::ops
