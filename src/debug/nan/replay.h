// `lft replay`: runs an incident again with the same samples, weights, dropout masks, precision and
// loss scale, and searches for values that are not finite.
#pragma once
#include <string>

namespace lft::debug {

/// Prints the finding. Returns 0 if everything is finite this time: then the bad value came from
/// outside the batch. kNumeric with the cause if it is found again; kInput for a damaged directory,
/// or if model or data do not fit. Writes nothing.
int replay(const std::string& incident_dir);

}  // namespace lft::debug
