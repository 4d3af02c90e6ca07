// The declared commands as plain data, for the man page and shell completions.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace lft::cli {

struct OptionText {
  std::vector<std::string> names;  // "--set"; for a positional argument its name
  std::string value, help;         // value: "TEXT", "INT"; empty for a flag
  std::string fallback;            // the default value, or empty
  bool positional = false, required = false;
};
struct CommandText {
  std::string name, help, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;  // without the hidden ones
};

/// roff, for man(1).
std::string man_page(const CommandText& lft, const std::string& version);
/// Completions of a value, by the name of its option ("--set") or positional argument ("recipe").
/// Those that end with "=" are followed by more.
using ValueWords = std::map<std::string, std::vector<std::string>>;
/// shell: bash, zsh or fish; kUsage for another.
std::string completions(const CommandText& lft, const std::string& shell, const ValueWords& values);

}  // namespace lft::cli
