#include "src/debug/repeat/verify_resume.h"

#include <memory>
#include <string>

#include "src/cli/commands.h"
#include "src/cli/outputs.h"
#include "src/cli/recipe_args.h"
#include "src/io/files.h"

namespace lft::cli {

void add_verify_resume(Command& app) {
  struct Options : RecipeArgs {
    std::string out;
    int64_t steps = 4;
  };
  auto [command, options] = recipe_command<Options>(
      app, "verify-resume",
      "train the first steps without interruption, and again with a checkpoint and a new process "
      "halfway; compare everything bit for bit and write a certificate; exits with 0 if all is "
      "identical, otherwise with 4");
  command
      .option("--steps", options->steps,
              "steps before the checkpoint, and the same number after it")
      .range(1, 1'000'000)
      .show_default();
  command.option("--out", options->out,
                 "file for the certificate (default: <output_dir>.resume-certificate.json)");
  command.run([options] {
    const recipe::Recipe recipe = options->read();
    refuse_input("--out", options->out, inputs_of(options->path, recipe));
    return debug::verify_resume(recipe, {.steps = options->steps, .out = options->out});
  });
}

/// The command that verify-resume runs in each process.
void add_debug_part(Command& debug) {
  struct Options {
    std::string recipe, out;
    int64_t stop_after_step = 0;
    bool resume = false;
  };
  auto options = std::make_shared<Options>();
  Command command = debug.hidden_subcommand("part", "train a recipe up to a step");
  command.option("recipe", options->recipe).required();
  command.option("--stop-after", options->stop_after_step).required().positive();
  command.option("--out", options->out).required();
  command.flag("--resume", options->resume);
  command.run([options] {
    const debug::PartEnd end = debug::train_part({.name = {},
                                                  .recipe = recipe::read_recipe(options->recipe),
                                                  .stop_after_step = options->stop_after_step,
                                                  .resume = options->resume});
    if (end.exit_code != 0) return end.exit_code;
    io::write_file_atomic(options->out, io::json_text(debug::part_json(end)));
    return 0;
  });
}

}  // namespace lft::cli
