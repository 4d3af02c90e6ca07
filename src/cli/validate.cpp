// lft validate: every row and every image of the data, before a run does it.
#include "src/debug/validate.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"

namespace lft::cli {
namespace {

struct ValidateArgs {
  std::string recipe;
  std::vector<std::string> sets;
  bool json = false;
  int64_t workers = 0;
};

/// One error for all of them: how many of each kind, and the first.
[[noreturn]] void fail(const DataReport& report, const Recipe& recipe) {
  std::vector<std::string> lines;
  for (const auto& [fault, problems] : report.first) {
    if (is_warning(fault)) continue;
    const DataProblem& first = problems.front();
    lines.push_back(std::to_string(report.counts.at(fault)) + " x " + fault_title(fault) + ", first " + first.where + ": " + first.reason);
  }
  throw Error(ErrorKind::kInput,
              {.what = "the data has " + std::to_string(report.errors()) + (report.errors() == 1 ? " problem" : " problems") +
                       " that training would stop at or learn wrongly from",
               .where = recipe.data.train + (recipe.data.eval.empty() ? "" : ", " + recipe.data.eval),
               .found = join(lines, "\n"),
               .expected = {},
               .next = "mend or remove these rows; data.on_bad_sample: skip leaves out those that cannot be read"});
}

void validate(const ValidateArgs& args) {
  const Recipe recipe = read_recipe(args.recipe, args.sets);
  const DataReport report = validate_data(recipe, args.workers);
  stop_if_requested();
  const std::string text =
      args.json ? data_report_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : data_report_text(report);
  std::fputs(text.c_str(), stdout);
  if (report.errors() > 0) fail(report, recipe);
}

}  // namespace

void add_validate(CLI::App& app) {
  auto args = std::make_shared<ValidateArgs>();
  CLI::App* command = app.add_subcommand(
      "validate", "read every row and decode every image of the data; exits with 0 if training finds nothing to stop at");
  command->add_option("recipe", args->recipe, "the recipe whose data.train and data.eval are read")->required();
  command->add_option("--set", args->sets, "key.path=value: overrides one field of the recipe; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--json", args->json, "one JSON object instead of the text");
  command->add_option("--workers", args->workers, "threads; by default one a core. They do not change the result")
      ->check(CLI::Range(1, 1024));
  command->callback([args] { validate(*args); });
}

}  // namespace lft::cli
