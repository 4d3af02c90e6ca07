// The commands as plain data, as they are declared: what a man page and a shell's completions are
// made of.
#pragma once
#include <string>
#include <vector>

namespace lft::cli {

struct OptionText {
  std::vector<std::string> names;  // "--set"; of a positional argument its one bare name
  std::string value, help;         // value: "TEXT", "INT"; empty of a flag
  std::string fallback;            // the value where none is given; empty where there is none
  bool positional = false, required = false;
};
struct CommandText {
  std::string name, help, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;  // without the hidden ones
};

/// roff, for man(1).
std::string man_page(const CommandText& lft, const std::string& version);
/// shell: bash, zsh or fish; kUsage for another.
std::string completions(const CommandText& lft, const std::string& shell);

}  // namespace lft::cli
