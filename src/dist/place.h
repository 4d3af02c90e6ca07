// Which process of a run this is, as who started it says: torchrun and lft launch, SLURM's srun, or
// Open MPI's mpirun. Reads the environment alone; opens nothing.
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
  bool agent_store = false;  // torchrun's agent keeps the store, rank 0 only visits it
  int64_t restart = 0;       // how often the agent has started all of them again
  bool alone() const { return ranks == 1; }
};

/// The value of a variable; nothing where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// One process where nothing says otherwise. kUsage for variables that contradict each other, are
/// incomplete, or are no numbers. What torchrun's agent says to its children comes before what the
/// cluster says to the agent.
Place read_place(const Environment& environment);

/// "node001" of "node[001-004,007],login": the first name of SLURM's notation.
std::string first_host(const std::string& node_list);

}  // namespace lft::dist
