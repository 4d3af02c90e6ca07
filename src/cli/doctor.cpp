#include "src/debug/doctor.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "src/base/errors.h"
#include "src/cli/commands.h"

namespace lft::cli {
namespace {

void print_doctor(bool json) {
  const DoctorReport report = examine();
  if (json) {
    std::printf("%s\n", report.facts.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    for (const std::string& line : doctor_lines(report)) std::printf("%s\n", escape_text(line, 4000).c_str());
  }
  if (report.problems.empty()) return;
  throw Error(report.problems.front().kind,
              {.what = report.problems.front().what,
               .where = {},
               .found = std::to_string(report.problems.size()) + (report.problems.size() == 1 ? " problem" : " problems"),
               .expected = {},
               .next = "paste what was printed into a bug report"});
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "doctor",
      "build, libraries, driver, devices, and a training step in every precision that proves they work together; exits with 0 where "
      "they do, with 6 where the machine and with 1 where the numbers are at fault");
  command->add_flag("--json", *json, "the same as JSON");
  command->callback([json] { print_doctor(*json); });
}

}  // namespace lft::cli
