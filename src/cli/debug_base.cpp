// lft debug base: what looks damaged in a base model, before anything is trained on it.
#include <memory>

#include "src/cli/commands.h"
#include "src/io/run_folder.h"
#include "src/train/weights/inspect_base.h"

namespace lft::cli {
namespace {

constexpr char kFooter[] =
    "Suspicions, never refusals: it ends with 0 whatever it finds. A line names a tensor or "
    "layers, what was found,\nwhat their neighbours have, and what to do. A model that was trained "
    "little "
    "gives less to judge by; the lines\n\"not judged\" say of what nothing could be told.";

}  // namespace

void add_debug_base(Command& debug) {
  auto path = std::make_shared<std::string>();
  Command command =
      debug.subcommand("base", "what looks damaged in a base model, the oddest first");
  command.option("MODEL", *path, "a model directory: config.json and *.safetensors")
      .required()
      .meaning(io::model_folder);
  command.footer(kFooter);
  command.run([path] { print_lines(train::base_lines(train::inspect_base(*path))); });
}

}  // namespace lft::cli
