// The commands of lft: each add_<command> registers one subcommand. Nothing is read, loaded or created before its callback runs.
#pragma once
#include <CLI/App.hpp>

namespace lft::cli {

/// Registers the subcommand with its options and a callback. The callback throws lft::Error on failure; only main catches.
void add_train(CLI::App& app);
void add_check(CLI::App& app);
void add_validate(CLI::App& app);
void add_preview(CLI::App& app);
void add_prepare(CLI::App& app);
void add_recipe(CLI::App& app);
void add_generate(CLI::App& app);
void add_eval(CLI::App& app);
void add_score(CLI::App& app);
void add_merge(CLI::App& app);
void add_summary(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_verify_resume(CLI::App& app);
void add_doctor(CLI::App& app);
void add_debug(CLI::App& app);
void add_replay(CLI::App& app);

}  // namespace lft::cli
