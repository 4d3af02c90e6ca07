// Memory that the processes of a run on one machine hold together (models/ops/weight/sharded.h). On
// a CPU pages that the system shares, which stay there while one process is left that has them; on
// GPUs each process's own memory, seen by the others through CUDA.
#pragma once
#include <memory>

#include "models/ops/weight/sharded.h"
#include "src/dist/ranks.h"

namespace lft::dist {

/// By all processes of the run. Null in one that is alone on its machine, as far as it sees.
/// `ranks` outlives it. kResource, from hold() on, where memory is lacking or the others' cannot be
/// opened.
std::shared_ptr<ops::ShardMemory> share_memory(Ranks& ranks, at::Device device);

}  // namespace lft::dist
