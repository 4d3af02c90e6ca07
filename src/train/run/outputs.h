// What a user takes away from a run: the adapter (or the whole model), and report.html.
#pragma once
#include <string>

#include "src/train/run/run.h"

namespace lft::train {

/// The adapter directory, or model/ where everything was trained whole. Replaces what an earlier
/// process of the run left there.
void save_outputs(Run& run);

/// Saves the run as it is to output_dir/best, as a checkpoint in place of the one before.
void save_best(Run& run, uint64_t metrics_bytes);
/// Puts the trained weights of that checkpoint into the model. kCheckpoint where it does not verify
/// or is another run's.
void take_best(Run& run);

struct ReportFacts {
  double seconds = 0, eval_loss = NAN;
  std::vector<std::pair<std::string, double>> figures = {};  // of train.keep_best's metric, by name
  std::string images = {};    // the loss by image; empty: no row shows one
  bool with_answers = false;  // of the model to a few samples
};
void write_run_report(Run& run, const std::string& environment_json, const ReportFacts& facts);

}  // namespace lft::train
