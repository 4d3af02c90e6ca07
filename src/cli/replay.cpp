#include "src/debug/nan/replay.h"

#include <memory>
#include <string>

#include "src/cli/commands.h"
#include "src/io/run_folder.h"

namespace lft::cli {

void add_replay(Command& app) {
  auto dir = std::make_shared<std::string>();
  Command command = app.subcommand(
      "replay",
      "runs an incident's batch again under watch and names the op and module of the first "
      "value that is not finite; exits with 5 where it finds one");
  command
      .option("INCIDENT_DIR", *dir,
              "<output_dir>/incidents/step-<n>, or a run's folder: its last incident")
      .required()
      .meaning(io::incident_folder);
  command.run([dir] { debug::replay(*dir); });
}

}  // namespace lft::cli
