// lft completions: shell completions and the man page, from the commands' declarations.
#include <iostream>
#include <memory>

#include "src/cli/command_text.h"
#include "src/cli/commands.h"
#include "src/hf/exports/clients.h"
#include "src/infer/metrics.h"
#include "src/recipe/shipped.h"
#include "src/recipe/strict_reader.h"

namespace lft::cli {
namespace {

/// Values that do not depend on files of the user. Names of recipes are those of this installation.
ValueWords known_values() {
  std::vector<std::string> sets, targets;
  for (const std::string& field : recipe::field_names().fields) sets.push_back(field + "=");
  for (const hf::Target target :
       {hf::Target::kPeft, hf::Target::kVllm, hf::Target::kSglang, hf::Target::kGguf})
    targets.push_back(hf::target_name(target));
  const std::vector<std::string> recipes = recipe::shipped_names();
  return {{"--set", sets},
          {"--over", sets},
          {"--target", targets},
          {"--metric", infer::metric_names()},
          {"recipe", recipes},
          {"NAME", recipes},
          {"RUN", recipes},
          {"SHELL", {"bash", "zsh", "fish", "man"}},
          {"FIELD", recipe::field_names().fields}};
}

}  // namespace

void add_completions(Command& app) {
  const auto shell = std::make_shared<std::string>();
  Command command = app.subcommand("completions", "print shell completions or the man page");
  command.option("SHELL", *shell, "bash, zsh or fish; or man").required();
  command.footer(
      "bash: lft completions bash > ~/.local/share/bash-completion/completions/lft\ncmake "
      "--install installs all of them in the system's directories.");
  command.run([shell] {
    const CommandText lft = describe_commands(add_commands);
    std::cout << (*shell == "man" ? man_page(lft, version_text())
                                  : completions(lft, *shell, known_values()));
  });
}

}  // namespace lft::cli
