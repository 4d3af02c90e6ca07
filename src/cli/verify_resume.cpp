#include "src/debug/verify_resume.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/commands.h"
#include "src/cli/debug.h"
#include "src/cli/outputs.h"
#include "src/io/files.h"
#include "src/recipe/recipe.h"

namespace lft::cli {

void add_verify_resume(CLI::App& app) {
  struct Options {
    std::string recipe, out;
    std::vector<std::string> sets;
    int64_t steps = 4;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify-resume",
      "trains the first steps without a stop, and again with a checkpoint and a new process halfway; compares everything bit for "
      "bit and writes a certificate; exits with 0 where all is identical, with 4 where it is not");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--steps", options->steps, "steps before the checkpoint, and as many behind it")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  command->add_option("--out", options->out, "the certificate's file; by default <output_dir>.resume-certificate.json");
  command->callback([options] {
    const Recipe recipe = read_recipe(options->recipe, options->sets);
    refuse_input("--out", options->out, inputs_of(options->recipe, recipe));
    const int code = verify_resume(recipe, {.steps = options->steps, .out = options->out});
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

/// What verify-resume runs in each of its processes.
void add_debug_part(CLI::App& debug) {
  struct Options {
    std::string recipe, out;
    int64_t stop_behind = 0;
    bool resume = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand("part", "trains a recipe up to a step")->group("");
  command->add_option("recipe", options->recipe)->required();
  command->add_option("--stop-behind", options->stop_behind)->required()->check(CLI::PositiveNumber);
  command->add_option("--out", options->out)->required();
  command->add_flag("--resume", options->resume);
  command->callback([options] {
    const PartEnd end =
        train_part({.name = {}, .recipe = read_recipe(options->recipe), .stop_behind = options->stop_behind, .resume = options->resume});
    if (end.exit_code != 0) throw CLI::RuntimeError(end.exit_code);
    write_file_atomic(options->out, part_json(end).dump(-1, ' ', false, Json::error_handler_t::replace));
  });
}

}  // namespace lft::cli
