// The commands under `lft debug`, each registered as a command is (commands.h). What they
// find out is src/debug's.
#pragma once
#include "src/cli/command_line.h"

namespace lft::cli {

void add_debug_base(Command& debug);
void add_debug_determinism(Command& debug);
void add_debug_diff(Command& debug);
void add_debug_part(Command& debug);
void add_debug_nan(Command& debug);
void add_debug_bare(Command& debug);
void add_debug_memory(Command& debug);
void add_debug_overfit(Command& debug);
void add_debug_subset(Command& debug);
void add_debug_weights(Command& debug);

}  // namespace lft::cli
