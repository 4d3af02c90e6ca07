// Ends the program if memory is exhausted where no exception can be thrown.
#pragma once

namespace lft {

constexpr char kFreeMemory[] =
    "free memory, or raise the limits of this process (ulimit -v, ulimit -u, a container's)";

/// If an allocation fails in a noexcept function (a destructor of nlohmann::json allocates), the
/// program prints an error block and exits with kResource's exit code instead of abort(). Files are
/// left as after a kill. Call it once, early in main().
void end_where_memory_runs_out();

}  // namespace lft
