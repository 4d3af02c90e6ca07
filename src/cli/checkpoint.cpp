// lft checkpoint: lists and verifies the checkpoints of a run.
#include "src/checkpoint/checkpoint.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

namespace fs = std::filesystem;

std::string time_text(int64_t seconds) {
  if (seconds == 0) return "-";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

/// Checkpoints of an output_dir, of its checkpoints directory, or a single one.
std::vector<checkpoint::CheckpointStatus> find_checkpoints(const std::string& given) {
  if (!io::is_directory(given)) {
    refuse(ErrorKind::kUsage, "no such directory", given, {},
           "an output_dir, its checkpoints folder or one step-<n> in it");
  }
  const fs::path path = io::absolute_path(given);
  if (io::is_directory(path / "checkpoints"))
    return checkpoint::list_checkpoints(path / "checkpoints", /*verify=*/true);
  const bool is_step =
      path.filename().string().starts_with("step-") || io::path_exists(path / "MANIFEST");
  return is_step ? std::vector{checkpoint::inspect_checkpoint(path)}
                 : checkpoint::list_checkpoints(path, /*verify=*/true);
}

std::string row_text(const std::string& step, const std::string& size, const std::string& saved,
                     const std::string& run, const std::string& state) {
  char text[128];
  std::snprintf(text, sizeof text, "%-12.40s  %10s  %-19s  %-24.40s  ", step.c_str(), size.c_str(),
                saved.c_str(), run.c_str());
  return text + state + "\n";
}

std::string table(const std::vector<checkpoint::CheckpointStatus>& list) {
  std::string text = row_text("step", "size", "saved", "run", "state");
  for (const checkpoint::CheckpointStatus& each : list) {
    text += row_text(fs::path(each.path).filename().string(),
                     format_bytes(static_cast<double>(each.bytes)), time_text(each.saved_at),
                     escape_text(each.run_id),
                     each.fault.empty() ? "verified" : escape_text(each.fault, 1000));
  }
  text.pop_back();
  return text;
}

void list_steps(const std::string& dir) {
  const std::vector<checkpoint::CheckpointStatus> list = find_checkpoints(dir);
  if (list.empty()) {
    std::printf("no checkpoints in %s\n", escape_text(dir).c_str());
  } else {
    print_line(table(list));
  }
}

void verify_steps(const std::string& dir) {
  const std::vector<checkpoint::CheckpointStatus> list = find_checkpoints(dir);
  std::vector<std::string> faults;
  for (const checkpoint::CheckpointStatus& each : list) {
    if (!each.fault.empty()) faults.push_back(each.path + ": " + each.fault);
  }
  if (list.empty())
    refuse(ErrorKind::kCheckpoint, "no checkpoint is there", dir, {}, {},
           "name the output_dir of a run, its checkpoints/, or one checkpoint");
  if (!faults.empty()) {
    refuse(ErrorKind::kCheckpoint, "not every checkpoint verifies", dir, join(faults, "\n"), {},
           "lft train --resume resumes from the newest that does");
  }
  print_line(table(list));
}

}  // namespace

void add_checkpoint(Command& app) {
  Command command = app.subcommand("checkpoint", "list and verify the checkpoints of a run");
  command.require_subcommand();
  const auto add = [&](const char* name, const char* help, void (*run)(const std::string&)) {
    auto dir = std::make_shared<std::string>();
    Command action = command.subcommand(name, help);
    action.option("DIR", *dir, "an output_dir, its checkpoints directory, or one step-<n>")
        .required();
    action.run([dir, run] { run(*dir); });
  };
  add("ls", "print one line for each step; reads every file", list_steps);
  add("verify", "read every file; exit 0 when all steps verify, else 4 with the list",
      verify_steps);
}

}  // namespace lft::cli
