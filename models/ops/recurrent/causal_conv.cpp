#include "models/ops/recurrent/causal_conv.h"

#include <ATen/ATen.h>

#include <vector>

#include "models/base/dims.h"

namespace lft::ops {

ConvResult causal_conv_silu(const at::Tensor& x_tc, const at::Tensor& weight_cw,
                            const PackedSequences& sequences, const at::Tensor& first_scw1,
                            bool last) {
  const int64_t channels = x_tc.size(-1), before = weight_cw.size(1) - 1;
  expect_dims(x_tc, "x", {{"t", sequences.starts.back()}, {"c"}});
  expect_dims(weight_cw, "weight", {{"c", channels}, {"w"}});
  const at::ScalarType type = x_tc.scalar_type(),
                       wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weight = weight_cw.to(wide);
  std::vector<at::Tensor> out, lasts;
  for (size_t s = 0; s + 1 < sequences.starts.size(); ++s) {
    const int64_t begin = sequences.starts[s], count = sequences.starts[s + 1] - begin;
    const at::Tensor first =
        first_scw1.defined() ? first_scw1.select(0, static_cast<int64_t>(s)).detach().t().to(type)
                             : at::zeros({before, channels}, x_tc.options());
    const at::Tensor all = at::cat({first, x_tc.narrow(0, begin, count)});
    at::Tensor sum = at::zeros({count, channels}, x_tc.options().dtype(wide));
    for (int64_t j = 0; j <= before; ++j)
      sum = sum + all.narrow(0, j, count).to(wide) * weight.select(1, j);
    out.push_back(at::silu(sum.to(type).to(wide)).to(type));
    if (last) lasts.push_back(all.narrow(0, count, before).detach().t());
  }
  return {at::cat(out), last ? at::stack(lasts).contiguous() : at::Tensor()};
}

}  // namespace lft::ops
