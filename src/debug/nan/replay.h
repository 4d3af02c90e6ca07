// `lft replay`: an incident folder runs again: same samples, weights, dropout masks, precision and
// loss scale, under the hunt's watch.
#pragma once
#include <string>

namespace lft::debug {

/// Prints the finding. 0 when everything is finite this time: then the bad value came from outside
/// the batch. kNumeric naming the culprit where it is found again; kInput for a folder that is
/// damaged, or that model or data at hand do not fit. Writes nothing.
int replay(const std::string& incident_dir);

}  // namespace lft::debug
