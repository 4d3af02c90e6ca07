#include <memory>
#include <string>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/debug/repeat/diff.h"
#include "src/debug/repeat/diff_lines.h"

namespace lft::cli {
namespace {

void print_diff(const std::string& a, const std::string& b) {
  const debug::RunDiff diff = debug::diff_runs(a, b);
  for (const std::string& line : debug::diff_lines(diff)) print_line(escape_text(line, 4000));
  if (diff.step == 0) return;
  refuse(ErrorKind::kNumeric, "the runs part", debug::parting_text(diff), {}, {},
         "if the settings are the same, lft debug determinism RECIPE names the module");
}

}  // namespace

void add_debug_diff(Command& debug) {
  struct Options {
    std::string a, b;
  };
  auto options = std::make_shared<Options>();
  Command command =
      debug.subcommand("diff",
                       "find where two runs diverge, and whether samples, schedule or numbers "
                       "differ; exits with 0 if no step differs, otherwise with 5");
  command.option("run_a", options->a, "output directory of a run").required();
  command.option("run_b", options->b, "output directory of another run").required();
  command.run([options] { print_diff(options->a, options->b); });
}

}  // namespace lft::cli
