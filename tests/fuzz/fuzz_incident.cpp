#include "src/debug/nan/incident_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool incident(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const debug::Incident read =
        debug::parse_incident(io::parse_json(bytes, "incident.json"), "incident.json");
    expect(!read.rows.empty() && read.loss_scale > 0 && read.step > 0, "what a step has");
  });
}

}  // namespace lft::fuzz
