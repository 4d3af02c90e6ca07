// Starts the processes of a run on this machine and waits for them. They find each other by
// themselves; nothing is restarted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lft::dist {

/// Runs this program `count` times with `arguments`, as ranks 0 to count - 1. Signals go on to all
/// of them. Where one has failed, those that are stopped are ended when the others have left, and
/// what outlives rank 0 by ten seconds. Returns the exit code of the first process that ended by
/// itself with one other than 0; else 128 + n where one was ended by signal n; else 0. kResource
/// where a process cannot be started; none is left then.
int launch(int64_t count, const std::vector<std::string>& arguments);

}  // namespace lft::dist
