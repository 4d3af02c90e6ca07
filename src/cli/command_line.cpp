#include "src/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/cli/command_text.h"
#include "src/recipe/foreign_names.h"
#include "src/recipe/strict_reader.h"

namespace lft::cli {
namespace {

Error usage_error(const std::string& what, const std::string& next) {
  return Error(ErrorKind::kUsage, {what, {}, {}, {}, next});
}

/// Commands of other programs, and words that people try.
std::string known_elsewhere(const std::string& name) {
  static const std::map<std::string, std::string> kCommands = {
      {"chat", "generate"},  {"infer", "generate"}, {"inference", "generate"},
      {"predict", "eval"},   {"api", "serve"},      {"sft", "train"},
      {"finetune", "train"}, {"list", "runs"},      {"compare", "runs"},
      {"report", "status"},  {"best", "runs best"}, {"recipes", "recipe"}};
  const auto found = kCommands.find(name);
  return found == kCommands.end() ? "" : found->second;
}

/// CLI11 would report a misspelt command as an unexpected argument.
void check_command_name(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string& name = arguments[0];
  if (name.empty() || name[0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& known : names) {
    if (known == name) return;
  }
  if (const std::string ours = known_elsewhere(name); !ours.empty())
    throw usage_error("unknown command " + quote_text(name), "in lft: lft " + ours);
  const std::vector<std::string> near = closest_names(name, names, 1);
  throw usage_error(
      "unknown command " + quote_text(name),
      near.empty() ? "lft --help lists the commands" : "did you mean lft " + near[0] + "?");
}

/// "lft" and "lft help" mean lft --help, "lft help train" means lft train --help.
std::vector<std::string> with_help(std::vector<std::string> arguments) {
  if (arguments.empty()) return {"--help"};
  if (arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.push_back("--help");
  return arguments;
}

/// The recipe's field with the name of an option ("--learning_rate", "lora.rank=8"), by lft's name
/// or another tool's; empty: none.
std::string field_of(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='))
                               .substr(std::min(argument.find_first_not_of('-'), argument.size()));
  if (const std::string ours = recipe::lft_name(name); !ours.empty())
    return ours.substr(0, ours.find(','));
  for (const std::string& field : recipe::field_names().fields) {
    if (field == name || field.substr(field.rfind('.') + 1) == name) return field;
  }
  return "";
}

/// The advice for unknown arguments of a command with a recipe.
std::string set_instead(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (command->get_option_no_throw("--set") == nullptr) return "";
  for (const std::string& argument : app.remaining(/*recurse=*/true)) {
    if (const std::string field = field_of(argument); !field.empty())
      return "fields of the recipe are given as --set " + field + "=VALUE";
  }
  return "";
}

/// --help and --version print; a command may have returned an exit code; everything else is an
/// error in the command line.
int exit_code_of(CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    std::ostringstream text;
    const int code = app.exit(error, text, text);
    std::string lines = text.str();
    while (lines.ends_with('\n')) lines.pop_back();
    print_line(lines);
    return code;
  }
  if (dynamic_cast<const CLI::RuntimeError*>(&error) != nullptr) return error.get_exit_code();
  std::string command = "lft";
  for (const CLI::App* used = &app; !used->get_subcommands().empty();) {
    used = used->get_subcommands().front();
    command += " " + used->get_name();
  }
  const std::string set = set_instead(app);
  throw usage_error(error.what(), set.empty() ? command + " --help lists the options" : set);
}

CommandText text_of(const CLI::App& app) {
  CommandText text;
  text.name = app.get_name();
  text.help = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    OptionText one;
    one.help = option->get_description();
    one.positional = option->get_positional();
    one.required = option->get_required();
    one.fallback = option->get_default_str();
    if (one.positional) {
      one.names.push_back(option->get_name(/*positional=*/true));
    } else {
      for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    }
    if (option->get_items_expected_max() > 0) one.value = option->get_type_name();
    text.options.push_back(std::move(one));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) text.commands.push_back(text_of(*command));
  }
  return text;
}

}  // namespace

CommandText describe_commands(void (*add_commands)(Command&)) {
  CLI::App app("LoRA fine-tuning for vision-language models", "lft");
  Command root(&app);
  add_commands(root);
  return text_of(app);
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::range(int64_t low, int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option& Option::real_range(double low, double high) {
  const auto number = [](const std::string& text) {  // CLI::Range accepts NaN.
    return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : "";
  };
  option_->check(CLI::Range(low, high))->check(CLI::Validator(number, ""));
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::meaning(std::string (*meant)(const std::string&)) {
  option_->transform([meant](const std::string& given) {
    std::string path = meant(given);
    if (path != given) notice("using " + path + " of the run " + given);
    return path;
  });
  return *this;
}

Option& Option::one_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::hidden() {
  option_->group("");
  return *this;
}

Command Command::subcommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

Command Command::hidden_subcommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help)->group(""));
}

void Command::require_subcommand() { app_->require_subcommand(1); }

void Command::footer(const std::string& text) { app_->footer(text); }

template <class T>
Option Command::option(const std::string& names, T& target, const std::string& help) {
  return Option(app_->add_option(names, target, help));
}
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, std::optional<std::string>&,
                                const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, int64_t&, const std::string&);
template Option Command::option(const std::string&, std::optional<int64_t>&, const std::string&);
template Option Command::option(const std::string&, uint64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);

Option Command::flag(const std::string& names, bool& target, const std::string& help) {
  return Option(app_->add_flag(names, target, help));
}

void Command::set_body(std::function<int()> body) {
  app_->callback([body = std::move(body), app = app_] {
    if (!app->get_subcommands().empty()) return;
    const int code = body();
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

int run_command_line(const std::vector<std::string>& given, void (*add_commands)(Command&),
                     std::function<std::string()> version) {
  const std::vector<std::string> arguments = with_help(given);
  CLI::App app("LoRA fine-tuning for vision-language models", "lft");
  try {
    app.set_version_flag("--version", std::move(version));
    app.require_subcommand(1);
    Command root(&app);
    add_commands(root);
    check_command_name(app, arguments);
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the last is first
    return 0;
  } catch (const CLI::ParseError& error) {
    return exit_code_of(app, error);
  }
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) print_line(line);
}

void stop_if_requested() {
  if (const int signal = requested_signal(); signal != 0) {
    throw CLI::RuntimeError(stop_exit_code(signal));
  }
}

}  // namespace lft::cli
