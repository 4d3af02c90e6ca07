// Starts the processes of a run on this machine and waits for them. They connect by themselves;
// nothing is restarted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::dist {

/// Runs this program `count` times with `arguments`, as ranks 0 to count - 1, and forwards signals
/// to all of them. After a failure it kills stopped processes once the others have ended, and any
/// process that outlives rank 0 by ten seconds. Returns the exit code of the first process that
/// exited with one other than 0; else 128 + n if one was killed by signal n; else 0. kResource if a
/// process cannot be started; then none is left running.
int launch(int64_t count, const std::vector<std::string>& arguments);

}  // namespace lft::dist
