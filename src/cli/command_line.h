// The command line as the commands declare it: a thin face over CLI11, which command_line.cpp alone
// includes. No command is declared here (commands.h), and no error is printed.
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

/// An option just registered. What is said of it here stands in --help too.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  /// --help shows the value that the target has now.
  Option& show_default();
  /// Both ends are included. A NaN is in no range.
  Option& range(int64_t low, int64_t high);
  Option& real_range(double low, double high);
  Option& positive();
  /// A text is taken for what `meant` makes of it, and a line on stderr says so where that is
  /// another.
  Option& meaning(std::string (*meant)(const std::string&));
  /// Of a list: every mention of the option takes one value, where it would take all that follow.
  Option& one_each();

 private:
  CLI::Option* option_;
};

/// A command that is being registered: its subcommands, its options, and what it runs. The targets
/// of the options must live as long as the body; a body that holds them sees to that.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command subcommand(const std::string& name, const std::string& help);
  /// For what lft starts itself: --help does not list it.
  Command hidden_subcommand(const std::string& name, const std::string& help);
  void require_subcommand();
  /// The text below the options in --help.
  void footer(const std::string& text);

  /// Names are "--long", "-s,--long", or a bare word for a positional argument.
  /// T: std::string, an optional or a vector of them, int64_t or an optional of it, uint64_t or
  /// double.
  template <class T>
  Option option(const std::string& names, T& target, const std::string& help = {});
  void flag(const std::string& names, bool& target, const std::string& help = {});

  /// What the command does once its options are read. A body returns its exit code, or nothing for
  /// 0; it throws lft::Error on failure.
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

/// Runs the command that the arguments name, those of the program without its own name, and returns
/// its exit code. --help, --version, no argument at all and "help" print and return 0. Throws
/// kUsage for a mistake in them.
int run_command_line(const std::vector<std::string>& arguments, void (*add_commands)(Command&),
                     std::function<std::string()> version);

struct CommandText;  // src/cli/command_text.h
/// The declarations of lft and all its commands.
CommandText describe_commands(void (*add_commands)(Command&));

/// Lines of a result, as print_line() of src/base/log.h.
void print_lines(const std::vector<std::string>& lines);

/// Ends the command with exit code 130 (Ctrl-C) or 75 when a signal came; no output has taken its
/// place then.
void stop_if_requested();

}  // namespace lft::cli
