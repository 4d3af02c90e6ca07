// A tiny run whose model can memorise its rows: the random head of the plain one is too flat
// for a confident answer.
#pragma once
#include "debug/stored_model.h"

namespace lft::test {

/// Rewrites the model of `run` with an LM head ten times as large.
inline void make_learnable(const TinyRun& run) {
  change_model(run, [](StoredTensors& tensors) {
    scale_stored(tensors, "language_model.lm_head.weight", 10);
  });
}

}  // namespace lft::test
