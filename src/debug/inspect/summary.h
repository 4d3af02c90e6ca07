// Shapes, parameters, multiply-adds and memory of every module, of a model directory or of a run
// with its adapters and its first batch. They are counted on the meta device: no weight is read and
// nothing is computed.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/hf/model_dir.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A called module, in the order of calls, with callers first. Every number belongs to the
/// innermost called module, so that columns can be summed.
struct SummaryRow {
  std::string path, type;
  std::string input, output;  // "[1, 40, 32]"; "-": none
  std::string dtype = "-";    // of the parameters as stored; several are joined by a comma
  int64_t parameters = 0, trainable = 0;
  int64_t multiply_adds = 0;  // of the forward pass
  int64_t output_bytes = 0, parameter_bytes = 0;
  bool leaf = true;  // calls no other module

  bool operator==(const SummaryRow&) const = default;
};

struct Summary {
  std::vector<SummaryRow> rows;
  std::string batch;                      // "2 rows of 40 tokens, 1 image"
  std::map<std::string, int64_t> towers;  // parameters
  int64_t parameters = 0, trainable = 0, multiply_adds = 0;
  int64_t input_bytes = 0, activation_bytes = 0,
          parameter_bytes = 0;  // activations as in torchinfo: outputs of leaves, twice
};

/// The size of a synthetic batch; 0: one row with an image and a few tokens if the model's
/// positions allow.
struct SummaryOptions {
  int64_t batch = 0, tokens = 0;  // tokens in a row, including image positions
};

/// Parameters as stored in the checkpoint. kUsage for more tokens than the model has positions.
Summary summarize_model(const hf::ModelDir& dir, const SummaryOptions& options);
/// The summary of the run's first micro-batch, or with `options` of a synthetic one.
Summary summarize_run(const recipe::Recipe& recipe, const SummaryOptions& options);

}  // namespace lft::debug
