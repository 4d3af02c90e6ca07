#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/train/autograd_errors.h"
#include "src/train/device.h"

namespace {

using lft::Error;
using lft::ErrorKind;

int fail(const Error& error) {
  constexpr char kReport[] = "this is a fault of lft: report it with the command, the recipe and what lft doctor prints";
  const Error shown = error.kind() == ErrorKind::kInternal ? lft::advised(error, kReport) : error;
  std::fflush(stdout);
  std::fputs(lft::format_error(shown).c_str(), stderr);
  return static_cast<int>(error.kind());
}

Error usage(const std::string& what, const std::string& next) {
  return Error(ErrorKind::kUsage, {.what = what, .where = {}, .found = {}, .expected = {}, .next = next});
}

/// Where no run is at hand that would know what to change: whatever failed to allocate, a thread's stack included.
Error out_of_memory(const std::string& found) {
  return Error(ErrorKind::kResource, {.what = "out of memory",
                                      .where = {},
                                      .found = found,
                                      .expected = {},
                                      .next = "free memory, or raise the limits of this process (ulimit -v, ulimit -u, a container's)"});
}

void add_commands(CLI::App& app) {
  lft::cli::add_train(app);
  lft::cli::add_check(app);
  lft::cli::add_validate(app);
  lft::cli::add_preview(app);
  lft::cli::add_prepare(app);
  lft::cli::add_recipe(app);
  lft::cli::add_generate(app);
  lft::cli::add_eval(app);
  lft::cli::add_score(app);
  lft::cli::add_merge(app);
  lft::cli::add_summary(app);
  lft::cli::add_checkpoint(app);
  lft::cli::add_verify_resume(app);
  lft::cli::add_doctor(app);
  lft::cli::add_debug(app);
  lft::cli::add_replay(app);
}

/// CLI11 would call a misspelt command an unexpected argument.
void check_command_name(const CLI::App& app, int argc, char** argv) {
  if (argc < 2) throw usage("no command given", "lft --help lists the commands");
  const std::string name = argv[1];
  if (name.empty() || name[0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& known : names) {
    if (known == name) return;
  }
  const std::vector<std::string> near = lft::closest_names(name, names, 1);
  throw usage("unknown command " + lft::quote_text(name),
              near.empty() ? "lft --help lists the commands" : "did you mean lft " + near[0] + "?");
}

/// --help and --version print and are done; a command that stopped for a signal left its exit code; all else is a mistake on the command
/// line.
int finish(CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  if (dynamic_cast<const CLI::RuntimeError*>(&error) != nullptr) return error.get_exit_code();
  std::string command = "lft";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  return fail(usage(error.what(), command + " --help lists the options"));
}

int run(int argc, char** argv) {
  CLI::App app("LoRA fine-tuning for vision-language models", "lft");
  try {
    app.set_version_flag("--version", [] { return "lft " + lft::lft_version() + " (LibTorch " + lft::torch_version() + ")"; });
    app.require_subcommand(1);
    add_commands(app);
    check_command_name(app, argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return finish(app, error);
  } catch (const Error& error) {
    return fail(error);
  } catch (const c10::Error& error) {
    if (lft::is_out_of_memory(error)) return fail(out_of_memory(error.what_without_backtrace()));
    return fail(lft::explain_torch_error(error));
  } catch (const std::exception& error) {
    if (lft::is_out_of_memory(error)) return fail(out_of_memory(error.what()));
    return fail(Error(ErrorKind::kInternal, error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  lft::install_signal_handlers();
  return run(argc, argv);
}
