#include "src/dist/launch.h"

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"

namespace lft::cli {

void add_launch(Command& app) {
  struct Options : RecipeArgs {
    int64_t nproc = 1;
    bool resume = false;
  };
  auto [command, options] =
      recipe_command<Options>(app, "launch",
                              "train with several processes on this machine (data parallel): one "
                              "per GPU, or an equal share of CPU cores each");
  command.option("-n,--nproc", options->nproc, "processes").required().range(1, 1024);
  command.flag("--resume", options->resume, "continue from the newest checkpoint that verifies");
  command.run([options] {
    std::vector<std::string> arguments = {"train", options->path};
    for (const std::string& set : options->sets) arguments.insert(arguments.end(), {"--set", set});
    if (options->resume) arguments.emplace_back("--resume");
    return dist::launch(options->nproc, arguments);
  });
}

}  // namespace lft::cli
