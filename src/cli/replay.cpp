#include "src/debug/replay.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "src/cli/commands.h"

namespace lft::cli {

void add_replay(CLI::App& app) {
  auto dir = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("replay",
                                         "runs an incident's batch again under watch and names the op and module of the first "
                                         "value that is not finite; exits with 5 where it finds one");
  command->add_option("INCIDENT_DIR", *dir, "<output_dir>/incidents/step-<n>")->required();
  command->callback([dir] { replay(*dir); });
}

}  // namespace lft::cli
