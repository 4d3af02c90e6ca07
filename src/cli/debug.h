// The commands under `lft debug`, each registered as a command is (commands.h).
#pragma once
#include <CLI/App.hpp>

namespace lft::cli {

void add_debug_determinism(CLI::App& debug);
void add_debug_diff(CLI::App& debug);
void add_debug_part(CLI::App& debug);
void add_debug_nan(CLI::App& debug);
void add_debug_bare(CLI::App& debug);
void add_debug_memory(CLI::App& debug);
void add_debug_overfit(CLI::App& debug);
void add_debug_subset(CLI::App& debug);
void add_debug_weights(CLI::App& debug);

}  // namespace lft::cli
