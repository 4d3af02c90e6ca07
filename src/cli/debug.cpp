#include "src/cli/commands.h"

namespace lft::cli {

void add_debug(Command& app) {
  Command debug = app.subcommand(
      "debug", "find the cause of a problem in a run; each subcommand answers one question");
  debug.require_subcommand();
  for (const auto add :
       {add_debug_base, add_debug_determinism, add_debug_diff, add_debug_part, add_debug_nan,
        add_debug_bare, add_debug_memory, add_debug_overfit, add_debug_subset, add_debug_weights}) {
    add(debug);
  }
}

}  // namespace lft::cli
