#include "models/ops/recurrent/gated_delta.h"

#include "models/base/dims.h"
#include "models/ops/recurrent/delta_composed.h"

namespace lft::ops {

DeltaResult gated_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                             const at::Tensor& state_snde, bool final_state) {
  const int64_t t = sequences.starts.back(), d = in.q_thd.size(-1), n = in.v_tne.size(1);
  expect_dims(in.q_thd, "q", {{"t", t}, {"h"}, {"d"}});
  expect_dims(in.k_thd, "k", {{"t", t}, {"h", in.q_thd.size(1)}, {"d", d}});
  expect_dims(in.v_tne, "v", {{"t", t}, {"n"}, {"e"}});
  expect_dims(in.g_tn, "g", {{"t", t}, {"n", n}});
  expect_dims(in.beta_tn, "beta", {{"t", t}, {"n", n}});
  if (state_snde.defined()) {
    expect_dims(state_snde, "state",
                {{"s", static_cast<int64_t>(sequences.starts.size()) - 1},
                 {"n", n},
                 {"d", d},
                 {"e", in.v_tne.size(2)}});
  }
  return composed_delta_rule(in, sequences, state_snde, final_state);
}

}  // namespace lft::ops
