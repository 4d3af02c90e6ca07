// lft completions: shell completions and the man page, from the commands' declarations.
#include <iostream>
#include <memory>

#include "src/cli/command_text.h"
#include "src/cli/commands.h"

namespace lft::cli {

void add_completions(Command& app) {
  const auto shell = std::make_shared<std::string>();
  Command command = app.subcommand("completions", "print shell completions or the man page");
  command.option("SHELL", *shell, "bash, zsh or fish; or man").required();
  command.footer(
      "bash: lft completions bash > ~/.local/share/bash-completion/completions/lft\ncmake "
      "--install installs all of them in the system's directories.");
  command.run([shell] {
    const CommandText lft = describe_commands(add_commands);
    std::cout << (*shell == "man" ? man_page(lft, version_text()) : completions(lft, *shell));
  });
}

}  // namespace lft::cli
