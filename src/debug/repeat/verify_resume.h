// `lft verify-resume`: trains a recipe's first steps once in one process, and once with a
// checkpoint and a new process in between. All outputs must be equal bit for bit, and a certificate
// lists the comparison.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A part of a run: up to step `stop_after_step`, or the recipe's last step if that comes first.
struct RunPart {
  std::string name;  // whole, half, resumed
  recipe::Recipe recipe;
  int64_t stop_after_step = 0;
  bool resume = false;
};
struct PartEnd {
  int exit_code = 0;                  // 75 or 130: stopped by a signal, and the rest is empty
  int64_t step = 0;                   // its last step
  std::vector<std::string> next_ids;  // ids of the samples of the following step
};
/// Trains the part in this process.
PartEnd train_part(const RunPart& part);

io::Json part_json(const PartEnd& end);
/// kInput naming the field.
PartEnd parse_part(const io::Json& json, const std::string& where);

struct VerifyOptions {
  int64_t steps =
      4;  // the checkpoint is saved after this many, all is compared after twice as many
  std::string out = {};  // of the certificate; empty: <output_dir>.resume-certificate.json
  std::function<PartEnd(const RunPart&)> run_part =
      {};  // for tests: used instead of a separate process
};

/// Works in a directory next to output_dir and removes it; output_dir itself is neither read nor
/// written. Prints and writes the certificate for any result. Returns 0 if all is identical, or the
/// exit code after a signal. kCheckpoint with the first difference; kUsage for a run of one step,
/// which cannot be resumed.
int verify_resume(const recipe::Recipe& recipe, const VerifyOptions& options);

}  // namespace lft::debug
