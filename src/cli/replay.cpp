#include "src/debug/nan/replay.h"

#include <memory>
#include <string>

#include "src/cli/commands.h"
#include "src/io/run_folder.h"

namespace lft::cli {

void add_replay(Command& app) {
  auto dir = std::make_shared<std::string>();
  Command command =
      app.subcommand("replay",
                     "run the batch of an incident again and name the op and module of the first "
                     "value that is not finite; exits with 5 if it finds one");
  command
      .option("INCIDENT_DIR", *dir,
              "<output_dir>/incidents/step-<n>, or a run directory, whose last incident is used")
      .required()
      .meaning(io::incident_folder);
  command.run([dir] { debug::replay(*dir); });
}

}  // namespace lft::cli
