// log softmax of each row at one target, and in the same launch the gradient of the logits in
// place.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// logits: [rows, vocab] of `type`; targets [rows] in [0, vocab); result [rows] float32 = log
/// softmax(logits)[target]. A non-finite logit (other than -inf) makes the result NaN. If `scale`
/// [rows] is given, the logits become scale * (onehot(target) - softmax(logits)).
struct TokenLogprobArgs {
  FloatType type = FloatType::kF32;
  int64_t rows = 0, vocab = 0;
  void* logits = nullptr;
  const int64_t* targets = nullptr;
  const float* scale = nullptr;
  float* result = nullptr;
};

/// Reference implementation: in double, rounded once.
void token_logprob_ref(const TokenLogprobArgs& args);
/// The same in float32 on the GPU, asynchronous, bit-reproducible. Only in builds with CUDA. Throws
/// kInternal if the launch fails.
void token_logprob(const TokenLogprobArgs& args, Stream stream);

}  // namespace lft
