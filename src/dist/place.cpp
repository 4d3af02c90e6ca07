#include "src/dist/place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::dist {
namespace {

constexpr int64_t kMostRanks = 65536, kPort = 29500;
constexpr int64_t kFirstPort = 15000, kPorts = 10000;  // below the system's ephemeral ports

/// The three variables in which a launcher passes a process its rank.
struct Starter {
  const char *name, *rank, *ranks, *local;
};
constexpr Starter kTorch{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Starter kSlurm{"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};
constexpr Starter kMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                       "OMPI_COMM_WORLD_LOCAL_RANK"};

constexpr const char* kNext =
    "start all processes alike: lft launch, torchrun, srun or mpirun sets these variables; unset "
    "those that another program left";

std::optional<int64_t> number(const Environment& environment, const std::string& name,
                              int64_t most) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > most) {
    refuse(ErrorKind::kUsage, "a rank variable is not a valid number", name, quote_text(*text),
           "a whole number from 0 to " + std::to_string(most), kNext);
  }
  return value;
}

std::string said(const Starter& starter, const Place& place) {
  return std::string(starter.rank) + "=" + std::to_string(place.rank) + ", " + starter.ranks + "=" +
         std::to_string(place.ranks);
}

/// The place by the launcher's variables; nothing if they are unset.
std::optional<Place> place_by(const Starter& starter, const Environment& environment) {
  const std::optional<int64_t> rank = number(environment, starter.rank, kMostRanks - 1),
                               ranks = number(environment, starter.ranks, kMostRanks),
                               local = number(environment, starter.local, kMostRanks - 1);
  if (!rank && !ranks) return std::nullopt;
  // A batch script has SLURM_NTASKS but no process number; the same applies to a salloc shell.
  if (!rank && &starter != &kTorch) return std::nullopt;
  if (!rank || !ranks) {
    refuse(ErrorKind::kUsage, std::string("the variables of ") + starter.name + " are incomplete",
           {},
           std::string(rank ? starter.ranks : starter.rank) + " is not set, " +
               (rank ? starter.rank : starter.ranks) + " is",
           "both, or neither", kNext);
  }
  Place place{.rank = *rank, .ranks = *ranks, .local_rank = local.value_or(0)};
  if (place.rank >= place.ranks || place.local_rank >= std::max<int64_t>(place.ranks, 1)) {
    refuse(ErrorKind::kUsage,
           std::string("the variables of ") + starter.name + " contradict each other", {},
           said(starter, place) + ", " + starter.local + "=" + std::to_string(place.local_rank),
           "a rank below the number of processes", kNext);
  }
  return place;
}

void require_agreement(const Starter& one, const Place& place, const Starter& two,
                       const Place& other) {
  if (place.rank == other.rank && place.ranks == other.ranks) return;
  refuse(ErrorKind::kUsage, "two starters tell this process different places",
         std::string(one.name) + " and " + two.name, said(one, place) + "; " + said(two, other),
         "one place", kNext);
}

/// The rendezvous without MASTER_ADDR: a port of `host`, derived from a number that all processes
/// of the job know.
void meet(Place& place, const Environment& environment, const std::string& host, uint64_t job) {
  if (place.alone()) return;
  place.address = environment("MASTER_ADDR").value_or(host);
  place.port = number(environment, "MASTER_PORT", 65535)
                   .value_or(job == 0 ? kPort : kFirstPort + static_cast<int64_t>(job % kPorts));
  if (!place.address.empty()) return;
  refuse(ErrorKind::kUsage, "nothing says where the processes of the run meet", {},
         "MASTER_ADDR is not set", "the name of the machine of rank 0",
         "set MASTER_ADDR and MASTER_PORT for all processes alike (mpirun -x MASTER_ADDR=...)");
}

Place torch_place(Place place, const Environment& environment) {
  place.agent_store = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place.restart = number(environment, "TORCHELASTIC_RESTART_COUNT", 1 << 20).value_or(0);
  meet(place, environment, "", 0);
  return place;
}

Place slurm_place(Place place, const Environment& environment) {
  const std::string nodes =
      environment("SLURM_STEP_NODELIST").value_or(environment("SLURM_JOB_NODELIST").value_or(""));
  const auto job = number(environment, "SLURM_JOB_ID", INT64_MAX).value_or(0),
             step = number(environment, "SLURM_STEP_ID", INT64_MAX).value_or(0);
  place.restart = number(environment, "SLURM_RESTART_COUNT", 1 << 20).value_or(0);
  meet(place, environment, first_host(nodes), static_cast<uint64_t>(job) * 7 + step);
  return place;
}

Place mpi_place(Place place, const Environment& environment) {
  const bool one_machine =
      number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", kMostRanks).value_or(0) == place.ranks;
  const std::string job =
      environment("PMIX_NAMESPACE").value_or(environment("OMPI_MCA_ess_base_jobid").value_or(""));
  meet(place, environment, one_machine ? "127.0.0.1" : "",
       job.empty() ? 0 : std::hash<std::string>()(job) | 1);
  return place;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
}

Place read_place(const Environment& environment) {
  const std::optional<Place> torch = place_by(kTorch, environment);
  if (torch && environment("TORCHELASTIC_RUN_ID")) return torch_place(*torch, environment);
  const std::optional<Place> slurm = place_by(kSlurm, environment),
                             mpi = place_by(kMpi, environment);
  if (torch && slurm) require_agreement(kTorch, *torch, kSlurm, *slurm);
  if (torch && mpi) require_agreement(kTorch, *torch, kMpi, *mpi);
  if (torch) return torch_place(*torch, environment);
  // mpirun within an allocation: its processes are SLURM's only if srun started them.
  if (mpi) return mpi_place(*mpi, environment);
  return slurm ? slurm_place(*slurm, environment) : Place{};
}

std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t at = 0; at < node_list.size() && node_list[at] != ','; ++at) {
    if (node_list[at] != '[') {
      host += node_list[at];
      continue;
    }
    const size_t close = std::min(node_list.find(']', at), node_list.size());
    const size_t end = std::min(node_list.find_first_of("-,]", at), close);
    host += node_list.substr(at + 1, end - at - 1);
    at = close;
  }
  return host;
}

}  // namespace lft::dist
