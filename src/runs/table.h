// Runs as text of at most 80 columns, and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/runs/runs.h"

namespace lft::runs {

/// A row for each run: path, state, steps, best evaluation, time, and the recipe fields that are
/// not equal in all runs. Fields that do not fit are on separate lines below the row.
std::vector<std::string> runs_table(const std::vector<RunInfo>& runs);
/// {"runs": [{"path": ..., "state": ..., ...}]}, as recipes/FORMATS.md describes it.
nlohmann::ordered_json runs_json(const std::vector<RunInfo>& runs);
/// One element of "runs", with the fields in which it differs from others.
nlohmann::ordered_json run_json(const RunInfo& run, const Fields& changed);

/// The best of several runs, with the commands that use it. `best` is a position in `runs`.
std::vector<std::string> best_lines(const std::vector<RunInfo>& runs, size_t best);
/// The progress of one run.
std::vector<std::string> status_lines(const RunInfo& run);

}  // namespace lft::runs
