#include "src/debug/doctor/doctor.h"

#include <cstdio>
#include <memory>
#include <string>

#include "src/base/errors.h"
#include "src/cli/commands.h"

namespace lft::cli {
namespace {

void print_doctor(bool json) {
  const debug::DoctorReport report = debug::examine();
  if (json) {
    std::printf("%s\n",
                report.facts.dump(2, ' ', false, io::Json::error_handler_t::replace).c_str());
  } else {
    for (const std::string& line : debug::doctor_lines(report))
      std::printf("%s\n", escape_text(line, 4000).c_str());
  }
  if (report.problems.empty()) return;
  refuse(report.problems.front().kind, report.problems.front().what, {},
         std::to_string(report.problems.size()) +
             (report.problems.size() == 1 ? " problem" : " problems"),
         {}, "paste what was printed into a bug report");
}

}  // namespace

void add_doctor(Command& app) {
  auto json = std::make_shared<bool>(false);
  Command command =
      app.subcommand("doctor",
                     "build, libraries, driver, devices, and a training step in every precision "
                     "that proves they work together; exits with 0 where "
                     "they do, with 6 where the machine and with 1 where the numbers are at fault");
  command.flag("--json", *json, "the same as JSON");
  command.run([json] { print_doctor(*json); });
}

}  // namespace lft::cli
