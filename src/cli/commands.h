// The commands of lft: each add_<command> registers one subcommand. Nothing is read, loaded or
// created before its body runs.
#pragma once
#include <string>

#include "src/cli/command_line.h"

namespace lft::cli {

/// Registers the subcommand with its options and its body. The body throws lft::Error on failure;
/// only run_program() catches.
void add_train(Command& app);
void add_launch(Command& app);
void add_sweep(Command& app);
void add_runs(Command& app);
void add_status(Command& app);
void add_check(Command& app);
void add_validate(Command& app);
void add_preview(Command& app);
void add_prepare(Command& app);
void add_recipe(Command& app);
void add_generate(Command& app);
void add_eval(Command& app);
void add_score(Command& app);
void add_serve(Command& app);
void add_merge(Command& app);
void add_export(Command& app);
void add_summary(Command& app);
void add_checkpoint(Command& app);
void add_verify_resume(Command& app);
void add_doctor(Command& app);
void add_debug(Command& app);
void add_replay(Command& app);
void add_completions(Command& app);

/// The commands of `lft debug`, implemented in src/debug.
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

/// All of them.
void add_commands(Command& lft);
/// "lft 0.1.0 (LibTorch 2.11.0)"
std::string version_text();

}  // namespace lft::cli
