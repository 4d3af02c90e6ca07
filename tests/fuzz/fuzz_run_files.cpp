// Files that a run writes and later reads: state.json of a checkpoint (step 3 here), incident.json,
// and metrics.jsonl, in which a report skips unreadable lines: it refuses none.
#include "src/checkpoint/saved_state.h"
#include "src/debug/nan/incident_file.h"
#include "src/io/files.h"
#include "src/report/report.h"
#include "support/temp_dir.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool saved_state(std::string_view bytes) {
  io::Json state;
  return reads(ErrorKind::kInput, [&] { state = io::parse_json(bytes, "state.json"); }) &&
         reads(ErrorKind::kCheckpoint,
               [&] { checkpoint::check_saved_state(state, 3, "state.json"); });
}

bool incident(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const debug::Incident read =
        debug::parse_incident(io::parse_json(bytes, "incident.json"), "incident.json");
    expect(!read.rows.empty() && read.loss_scale > 0 && read.step > 0, "what a step has");
  });
}

bool metrics(std::string_view bytes) {
  static const test::TempDir folder;
  report::write_report(folder.file("report.html"),
                       {.title = "x", .metrics_text = std::string(bytes)});
  return io::read_file(folder.file("report.html")).find("could not be read") == std::string::npos;
}

}  // namespace lft::fuzz
