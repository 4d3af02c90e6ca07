#include "src/cli/debug.h"

#include "src/cli/commands.h"

namespace lft::cli {

void add_debug(Command& app) {
  Command debug =
      app.subcommand("debug", "finds what is wrong with a run; one question a subcommand");
  debug.require_subcommand();
  add_debug_base(debug);
  add_debug_determinism(debug);
  add_debug_diff(debug);
  add_debug_part(debug);
  add_debug_nan(debug);
  add_debug_bare(debug);
  add_debug_memory(debug);
  add_debug_overfit(debug);
  add_debug_subset(debug);
  add_debug_weights(debug);
}

}  // namespace lft::cli
