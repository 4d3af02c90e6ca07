#include "src/debug/doctor/doctor.h"

#include <cstdio>
#include <memory>
#include <string>

#include "src/base/errors.h"
#include "src/cli/commands.h"
#include "src/debug/doctor/doctor_lines.h"

namespace lft::cli {
namespace {

void print_doctor(bool json) {
  const debug::DoctorReport report = debug::examine();
  if (json) {
    std::printf("%s\n", io::json_text(report.facts, 2).c_str());
  } else {
    for (const std::string& line : debug::doctor_lines(report))
      std::printf("%s\n", escape_text(line, 4000).c_str());
  }
  if (report.problems.empty()) return;
  refuse(report.problems.front().kind, report.problems.front().what, {},
         std::to_string(report.problems.size()) +
             (report.problems.size() == 1 ? " problem" : " problems"),
         {}, "paste the output into a bug report");
}

}  // namespace

void add_doctor(Command& app) {
  auto json = std::make_shared<bool>(false);
  Command command = app.subcommand("doctor",
                                   "check the build, libraries, driver and devices by running a "
                                   "training step in every precision; exits with 0 if all work, "
                                   "with 6 for a problem of the machine, with 1 for wrong numbers");
  command.flag("--json", *json, "print JSON");
  command.run([json] { print_doctor(*json); });
}

}  // namespace lft::cli
