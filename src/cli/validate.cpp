// lft validate: checks every row and every image of the data.
#include "src/debug/data/validate.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/data/validate_print.h"

namespace lft::cli {
namespace {

struct ValidateArgs {
  RecipeArgs recipe;
  bool json = false;
  int64_t workers = 0;
};

/// One error for all problems: the number of each kind, and the first.
[[noreturn]] void refuse_data(const debug::DataReport& report, const recipe::Recipe& recipe) {
  std::vector<std::string> lines, advice;
  for (const auto& [fault, problems] : report.first) {
    if (debug::is_warning(fault)) continue;
    const debug::DataProblem& first = problems.front();
    lines.push_back(std::to_string(report.counts.at(fault)) + " x " + debug::fault_title(fault) +
                    ", first " + first.where + ": " + first.reason);
    if (!first.next.empty() && std::ranges::find(advice, first.next) == advice.end())
      advice.push_back(first.next);
  }
  if (report.has_too_many_bad())
    advice.push_back("or raise data.max_bad, which is " + std::to_string(report.max_bad) +
                     ", to leave such rows out");
  refuse(ErrorKind::kInput,
         "the data has " + std::to_string(report.errors()) +
             (report.errors() == 1 ? " problem: this row" : " problems: these rows") +
             " cannot be used for training",
         recipe.data.train.text() + (recipe.data.eval.empty() ? "" : ", " + recipe.data.eval),
         join(lines, "\n"), {}, advice.empty() ? "fix or remove these rows" : join(advice, "; "));
}

/// The command that shows the first suspicious image; empty if there is none.
std::string look_command(const debug::DataReport& report, const RecipeArgs& recipe) {
  for (const auto& [fault, problems] : report.first) {
    if (fault < debug::DataFault::kWhiteImage) continue;
    const debug::DataProblem& first = problems.front();
    const std::string row = first.id.empty() ? first.where : first.id;
    std::string command = "lft preview " + shell_word(recipe.path);
    for (const std::string& set : recipe.sets) command += " --set " + shell_word(set);
    return command + " --row " + shell_word(row) + " --html row.html";
  }
  return "";
}

void validate(const ValidateArgs& args) {
  const recipe::Recipe recipe = args.recipe.read();
  const debug::DataReport report = debug::validate_data(recipe, args.workers);
  stop_if_requested();
  if (args.json) {
    std::printf("%s\n", io::json_text(debug::data_report_json(report), 2).c_str());
  } else {
    std::string text = debug::data_report_text(report);
    text.pop_back();  // print_line() ends it
    print_line(text);
    if (const std::string look = look_command(report, args.recipe); !look.empty())
      print_line("to see it as the model does: " + look);
  }
  if (report.stops_training()) refuse_data(report, recipe);
}

}  // namespace

void add_validate(Command& app) {
  auto args = std::make_shared<ValidateArgs>();
  Command command = app.subcommand(
      "validate",
      "read every row and decode every image of the data; exits with 0 if training would not stop");
  add_recipe_args(command, args->recipe, "recipe whose data.train and data.eval are read")
      .one_each();
  command.flag("--json", args->json, "print one JSON object instead of text");
  command
      .option("--workers", args->workers,
              "number of threads, which does not change the result (default: one for each core)")
      .range(1, 1024);
  command.run([args] { validate(*args); });
}

}  // namespace lft::cli
