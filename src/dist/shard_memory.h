// Memory shared by the processes of a run on one machine (models/ops/weight/sharded.h). On a CPU it
// is shared pages, which exist while a process has them open; on GPUs each process's own memory,
// which the others open through CUDA.
#pragma once
#include <memory>

#include "models/ops/weight/sharded.h"
#include "src/dist/ranks.h"

namespace lft::dist {

/// Called by all processes of the run. Null for a process that is alone on its machine. `ranks`
/// outlives the result, whose hold() throws kResource if memory is short or cannot be opened.
std::shared_ptr<ops::ShardMemory> share_memory(Ranks& ranks, at::Device device);

}  // namespace lft::dist
