// The end of a program whose memory ran out where no exception can pass.
#pragma once

namespace lft {

constexpr char kFreeMemory[] =
    "free memory, or raise the limits of this process (ulimit -v, ulimit -u, a container's)";

/// From here on an allocation that fails in a function that may not throw (a destructor of
/// nlohmann::json allocates) prints an error block and ends the program with kResource's exit code,
/// instead of abort(). Files are as after a kill. Call once, early in main.
void end_where_memory_runs_out();

}  // namespace lft
