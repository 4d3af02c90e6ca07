#include "src/cli/program.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/out_of_memory.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "src/cli/commands.h"
#include "src/dist/ranks.h"
#include "src/io/json.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/machine/device.h"
#include "src/train/machine/shared_cores.h"

namespace lft::cli {
namespace {

/// The file in which torchrun expects the error of a process.
void write_elastic_error(const Error& error) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const io::Json json = {
      {"message",
       {{"message", format_error(error)},
        {"errorCode", static_cast<int>(error.kind())},
        {"extraInfo", {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
  std::ofstream(path) << io::json_text(json);
}

/// Lines of at most the terminal's width.
std::string folded_block(const std::string& block) {
  if (!is_terminal(STDERR_FILENO)) return block;
  const int64_t width = terminal_width(STDERR_FILENO);
  std::string out;
  for (size_t begin = 0, end = 0; (end = block.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    out += fold(std::string_view(block).substr(begin, end - begin), width) + "\n";
  return out;
}

int report_error(const Error& error) {
  constexpr char kReport[] =
      "this is a fault of lft: report it with the command, the recipe and what lft doctor prints";
  const Error shown = error.kind() == ErrorKind::kInternal ? advised(error, kReport) : error;
  std::fflush(stdout);
  std::string block = format_error(shown);
  constexpr std::string_view kMark = "error:";
  if (block.starts_with(kMark))
    block.replace(0, kMark.size(), coloured(kMark, Colour::kRed, STDERR_FILENO));
  if (!is_quiet()) std::fputs(folded_block(block).c_str(), stderr);
  write_elastic_error(shown);
  return static_cast<int>(error.kind());
}

/// The error outside a run, for any failed allocation, including a thread's stack.
Error out_of_memory(const std::string& found) {
  return Error(ErrorKind::kResource, {"out of memory", {}, found, {}, kFreeMemory});
}

/// Whether something printed to stdout was lost, other than to a reader that has closed its pipe.
bool lost_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return false;
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) < 0 || (output.revents & POLLERR) == 0;
}

/// The result of these commands is in files or connections; they only print their progress.
bool only_reports(const std::vector<std::string>& arguments) {
  static const std::set<std::string> kCommands = {"train", "launch", "sweep",  "serve",
                                                  "merge", "export", "prepare"};
  return !arguments.empty() && kCommands.contains(arguments.front());
}

int run_guarded(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    const int code = run_command_line(arguments, add_commands, version_text);
    if (code == 0 && !is_quiet() && !only_reports(arguments) && lost_output())
      refuse(ErrorKind::kResource, "the output of the command could not be written",
             "standard output", {}, {},
             "send it to a file on a disk with room, or to an open terminal or pipe");
    return code;
  } catch (const Error& error) {
    return report_error(error);
  } catch (const Stopped&) {
    return stop_exit_code(requested_signal());
  } catch (const c10::Error& error) {
    if (train::is_out_of_memory(error)) {
      return report_error(out_of_memory(error.what_without_backtrace()));
    }
    return report_error(train::explain_torch_error(error));
  } catch (const std::exception& error) {
    if (train::is_out_of_memory(error)) return report_error(out_of_memory(error.what()));
    return report_error(Error(ErrorKind::kInternal, error.what()));
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  install_signal_handlers();
  end_where_memory_runs_out();
  train::bound_cpu_memory();
  const train::SharedCores cores;
  const int code = run_guarded(argc, argv);
  if (!dist::group_is_broken()) return code;
  std::fflush(nullptr);
  _exit(code);  // threads may wait for a lost process
}

}  // namespace lft::cli
