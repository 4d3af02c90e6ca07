// `lft verify-resume`: trains a recipe's first steps once in one process, and once with a stop, a
// checkpoint and a new process in between; everything both leave must be the same, bit for bit.
// What was compared becomes a certificate.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A stretch of a run: up to `stop_behind`, or the recipe's last step where that comes first.
struct RunPart {
  std::string name;  // whole, half, resumed
  recipe::Recipe recipe;
  int64_t stop_behind = 0;
  bool resume = false;
};
struct PartEnd {
  int exit_code = 0;                  // 75 or 130: a signal stopped it, and the rest is empty
  int64_t step = 0;                   // after which it stopped
  std::vector<std::string> next_ids;  // of the samples that the step after it would train
};
/// In this process.
PartEnd train_part(const RunPart& part);

io::Json part_json(const PartEnd& end);
/// kInput naming the field.
PartEnd parse_part(const io::Json& json, const std::string& where);

struct VerifyOptions {
  int64_t steps =
      4;  // the checkpoint is saved after this many, everything is compared after twice as many
  std::string out = {};  // of the certificate; empty: <output_dir>.resume-certificate.json
  std::function<PartEnd(const RunPart&)> run_part =
      {};  // a test's way in: in place of a process of its own
};

/// Works in a folder beside output_dir and removes it; output_dir itself is neither read nor
/// written. Prints the certificate and writes it, whatever its verdict. 0: identical; or the exit
/// code of a stop by a signal. kCheckpoint naming what differs first; kUsage for a run of one step,
/// which cannot be resumed.
int verify_resume(const recipe::Recipe& recipe, const VerifyOptions& options);

}  // namespace lft::debug
