// lft debug memory: the memory of a step, as text and as a chart.
#include "src/base/signals.h"
#include "src/cli/commands.h"
#include "src/cli/outputs.h"
#include "src/cli/recipe_args.h"
#include "src/debug/memory/memory.h"

namespace lft::cli {

void add_debug_memory(Command& debug) {
  struct Options : RecipeArgs {
    debug::MemoryOptions memory;
  };
  auto [command, options] =
      recipe_command<Options>(debug, "memory",
                              "record every allocation of the first steps: the peak by use and by "
                              "module, a chart, and tensors that every step leaks");
  command.option("--steps", options->memory.steps, "number of steps").range(1, 1000).show_default();
  command.option("--out", options->memory.out, "HTML file for the chart").show_default();
  command.footer(
      "Exits with 5 if every step leaks tensors. On a GPU a snapshot for pytorch.org/memory_viz is "
      "written next to the chart, as\n.pickle. Nothing is written to the recipe's output_dir.");
  command.run([options] {
    const recipe::Recipe recipe = options->read();
    refuse_input("--out", options->memory.out, inputs_of(options->path, recipe));
    const debug::MemoryReport report = debug::debug_memory(recipe, options->memory);
    if (report.signal != 0) return stop_exit_code(report.signal);
    if (!report.picture.leaks.empty()) throw Error(ErrorKind::kNumeric, debug::leak_error(report));
    return 0;
  });
}

}  // namespace lft::cli
