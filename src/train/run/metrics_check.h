// Whether the metrics.jsonl that a resumed run goes on with is what its steps wrote.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::train {

/// One text a fault among the first `bytes` of the file: a line that cannot be read, a step that is
/// missing, a step whose loss or samples are not those of its run hash. Empty for a file that is
/// not there.
std::vector<std::string> metrics_faults(const std::string& path, uint64_t bytes);

}  // namespace lft::train
