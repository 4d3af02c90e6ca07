// NEFTune (Jain et al. 2023, arXiv 2310.05914): noise on the embeddings during training.
#pragma once
#include "models/family/batch.h"

namespace lft::family {

/// [b, t, d] with the dtype and device of the embeddings: uniform in (-m, m) with m = alpha /
/// sqrt(L d) for a sequence of L positions, including images; padding like its row. A pure function
/// of the dropout position (seed, step, micro-batch) and the device's kind. kInternal outside a
/// DropoutGuard.
at::Tensor embedding_noise(const Batch& batch, const at::Tensor& embeds_btd, double alpha);

}  // namespace lft::family
