// lft debug base: suspicious weights of a base model.
#include <memory>

#include "src/cli/commands.h"
#include "src/io/run_folder.h"
#include "src/train/weights/inspect_base.h"

namespace lft::cli {
namespace {

constexpr char kFooter[] =
    "The result is a list of suspicions, and the exit code is 0 in any case. Each line names a "
    "tensor or layers, what was found,\nwhat the neighbours have, and what to do. A model that was "
    "trained little gives less evidence; lines starting with\n\"not judged\" list checks that were "
    "not possible.";

}  // namespace

void add_debug_base(Command& debug) {
  auto path = std::make_shared<std::string>();
  Command command = debug.subcommand(
      "base", "list suspicious weights of a base model, the most suspicious first");
  command.option("MODEL", *path, "a model directory with config.json and *.safetensors")
      .required()
      .meaning(io::model_folder);
  command.footer(kFooter);
  command.run([path] { print_lines(train::base_lines(train::inspect_base(*path))); });
}

}  // namespace lft::cli
