// The rank of this process according to its launcher: torchrun and lft launch, SLURM's srun, or
// Open MPI's mpirun. Only reads the environment.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lft::dist {

struct Place {
  int64_t rank = 0, ranks = 1;
  int64_t local_rank = 0;    // among the processes of this machine
  std::string address = {};  // of rank 0's machine
  int64_t port = 0;
  bool agent_store = false;  // torchrun's agent runs the store; rank 0 is a client
  int64_t restart = 0;       // number of restarts by the agent
  bool alone() const { return ranks == 1; }
};

/// The value of a variable; nothing if it is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// One process if no launcher is found. kUsage for variables that contradict each other, are
/// incomplete, or are not numbers. Variables of torchrun's agent take precedence over those of the
/// cluster.
Place read_place(const Environment& environment);

/// "node001" for "node[001-004,007],login": the first name in SLURM's notation.
std::string first_host(const std::string& node_list);

}  // namespace lft::dist
