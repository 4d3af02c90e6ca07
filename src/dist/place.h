// Which process of a run this is, according to its launcher: torchrun and lft launch, SLURM's srun,
// or Open MPI's mpirun. Only reads the environment.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lft::dist {

struct Place {
  int64_t rank = 0, ranks = 1;
  int64_t local_rank = 0;    // among the processes of this machine
  std::string address = {};  // of the machine of rank 0
  int64_t port = 0;
  bool agent_store = false;  // torchrun's agent keeps the store; rank 0 is a client
  int64_t restart = 0;       // how often the agent has restarted all of them
  bool alone() const { return ranks == 1; }
};

/// The value of a variable; nothing when it is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// One process when no launcher is found. kUsage for variables that contradict each other, are
/// incomplete, or are not numbers. Variables of torchrun's agent take precedence over those of the
/// cluster.
Place read_place(const Environment& environment);

/// "node001" of "node[001-004,007],login": the first name of SLURM's notation.
std::string first_host(const std::string& node_list);

}  // namespace lft::dist
