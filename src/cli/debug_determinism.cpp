#include <memory>
#include <string>

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/repeat/determinism.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

/// The command that `determinism` runs in each process.
void add_trace(Command& debug) {
  struct Options {
    std::string recipe, out;
    int64_t steps = 5;
  };
  auto options = std::make_shared<Options>();
  Command command =
      debug.hidden_subcommand("trace", "write hashes of every tensor of the first steps");
  command.option("recipe", options->recipe).required();
  command.option("--steps", options->steps);
  command.option("--out", options->out).required();
  command.run([options] {
    io::write_file_atomic(options->out,
                          debug::trace_text(debug::trace_steps(recipe::read_recipe(options->recipe),
                                                               {.steps = options->steps})));
  });
}

}  // namespace

void add_debug_determinism(Command& debug) {
  add_trace(debug);
  struct Options : RecipeArgs {
    int64_t steps = 5;
  };
  auto [command, options] =
      recipe_command<Options>(debug, "determinism",
                              "run the first steps twice, in two processes, and once with other "
                              "data workers; exits with 0 if every bit is equal, otherwise with 5 "
                              "and the first step, module and tensor that differ; writes nothing");
  command.option("--steps", options->steps, "number of steps").range(1, 1'000'000).show_default();
  command.run(
      [options] { return debug::check_determinism(options->read(), {.steps = options->steps}); });
}

}  // namespace lft::cli
