// Declaration of commands and options: a thin wrapper of CLI11, which only command_line.cpp
// includes. The commands are in commands.h. No errors are printed here.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lft::cli {

/// A registered option. Its properties also appear in --help.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  /// --help shows the current value of the target.
  Option& show_default();
  /// The range includes both ends. A NaN is out of range.
  Option& range(int64_t low, int64_t high);
  Option& real_range(double low, double high);
  Option& positive();
  /// The value is replaced by `meant(value)`; if it changes, a line on stderr reports it.
  Option& meaning(std::string (*meant)(const std::string&));
  /// For a list: each occurrence of the option takes one value instead of all that follow.
  Option& one_each();
  /// Only lft itself gives it; --help does not list it.
  Option& hidden();

 private:
  CLI::Option* option_;
};

/// A command that is being registered: subcommands, options and body. The targets of the options
/// must live as long as the body, which therefore owns them.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command subcommand(const std::string& name, const std::string& help);
  /// A command that only lft itself starts; --help does not list it.
  Command hidden_subcommand(const std::string& name, const std::string& help);
  void require_subcommand();
  /// The text below the options in --help.
  void footer(const std::string& text);

  /// Names are "--long", "-s,--long", or a bare word for a positional argument.
  /// T: std::string, an optional or a vector of them, int64_t or an optional of it, uint64_t or
  /// double.
  template <class T>
  Option option(const std::string& names, T& target, const std::string& help = {});
  Option flag(const std::string& names, bool& target, const std::string& help = {});

  /// The body runs after the options are read, unless a subcommand was given. It returns the exit
  /// code, or nothing for 0, and throws lft::Error on failure.
  template <class Body>
  void run(Body body) {
    if constexpr (std::is_void_v<std::invoke_result_t<Body&>>) {
      set_body([body = std::move(body)]() mutable {
        body();
        return 0;
      });
    } else {
      set_body(std::move(body));
    }
  }

 private:
  void set_body(std::function<int()> body);

  CLI::App* app_;
};

/// Runs the command in the arguments (without the program's name) and returns its exit code.
/// --help, --version, "help" and no arguments print text and return 0. kUsage for an error in the
/// arguments.
int run_command_line(const std::vector<std::string>& arguments, void (*add_commands)(Command&),
                     std::function<std::string()> version);

struct CommandText;  // src/cli/command_text.h
/// The declarations of lft and all its commands.
CommandText describe_commands(void (*add_commands)(Command&));

/// Prints the lines of a result with print_line() of src/base/log.h.
void print_lines(const std::vector<std::string>& lines);

/// Exits with 130 (Ctrl-C) or 75 after a signal; no output file has been replaced then.
void stop_if_requested();

}  // namespace lft::cli
