// The outputs of a run: the adapter (or the whole model), and report.html.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/train/run/run.h"

namespace lft::train {

/// Writes the adapter directory, or model/ after full fine-tuning. Replaces the output of an
/// earlier process of the run.
void save_outputs(Run& run);

/// Loads the weights of the best evaluation into the model (load_best() of saved_steps.h).
void take_best(Run& run);

struct ReportFacts {
  double seconds = 0, eval_loss = NAN;
  std::vector<std::pair<std::string, double>> figures = {};  // of train.keep_best's metric, by name
  std::string images = {};    // the loss by image; empty: no row has one
  bool with_answers = false;  // the model's answers to a few samples
};
/// False if a signal interrupted the answers: the report then has none.
bool write_run_report(Run& run, const std::string& environment_json, const ReportFacts& facts);

}  // namespace lft::train
