// Rank and world size of a process, from the environment variables of its launcher.
#include <gtest/gtest.h>

#include <map>

#include "src/dist/place.h"
#include "support/expect_error.h"

namespace lft::place_test {
namespace {

using dist::Place;
using Variables = std::map<std::string, std::string>;

Place place_of(const Variables& variables) {
  return dist::read_place([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

const Variables kTorch = {{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "one"},
                          {"MASTER_PORT", "1234"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_JOB_NODELIST", "node[007-008]"}};
const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(Place, IsOneProcessWhereNothingIsSaid) {
  EXPECT_TRUE(place_of({}).alone());
  EXPECT_TRUE(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).alone());
  // The shell of an allocation has a task count but is not itself a task.
  EXPECT_TRUE(place_of({{"SLURM_NTASKS", "4"}}).alone());
}

TEST(Place, ByTorchrun) {
  const Place place = place_of(kTorch);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.ranks, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "one");
  EXPECT_EQ(place.port, 1234);
  EXPECT_FALSE(place.agent_store);
  const Place again = place_of(with(kTorch, {{"TORCHELASTIC_RUN_ID", "x"},
                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                             {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_TRUE(again.agent_store);
  EXPECT_EQ(again.restart, 2);
}

TEST(Place, BySlurmMeetsOnTheFirstNode) {
  const Place place = place_of(kSlurm), other = place_of(with(kSlurm, {{"SLURM_PROCID", "0"}}));
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "node007");
  EXPECT_EQ(place.port, other.port);
  EXPECT_GT(place.port, 1024);
  EXPECT_LT(place.port, 32768);  // below the ephemeral ports
  EXPECT_NE(place.port, place_of(with(kSlurm, {{"SLURM_JOB_ID", "78"}})).port);
  EXPECT_EQ(place_of(with(kSlurm, {{"MASTER_ADDR", "x"}, {"MASTER_PORT", "9"}})).address, "x");
}

TEST(Place, ByMpirun) {
  const Place place = place_of(kMpi);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.ranks, 2);
  EXPECT_EQ(place.address, "127.0.0.1");
  const Variables spread = with(kMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "MASTER_ADDR", place_of(spread));
  EXPECT_EQ(place_of(with(spread, {{"MASTER_ADDR", "x"}})).address, "x");
}

TEST(Place, OfAnAgentsChildIsWhatTheAgentSays) {
  const Variables both = with(kTorch, kSlurm);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "SLURM_PROCID=3", place_of(both));
  EXPECT_EQ(place_of(with(both, {{"TORCHELASTIC_RUN_ID", "x"}})).rank, 5);
  EXPECT_EQ(place_of(with(both, {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}})).rank, 5);
}

TEST(Place, ContradictionsAndWhatIsNoNumberAreRefused) {
  for (const Variables& change :
       {Variables{{"RANK", "8"}}, Variables{{"RANK", "-1"}}, Variables{{"RANK", "1x"}},
        Variables{{"WORLD_SIZE", "0"}}, Variables{{"WORLD_SIZE", "99999999999999999999"}},
        Variables{{"LOCAL_RANK", "8"}}, Variables{{"MASTER_PORT", "x"}}}) {
    const std::string& name = change.begin()->first;
    EXPECT_LFT_ERROR(ErrorKind::kUsage, name, place_of(with(kTorch, change)));
  }
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "WORLD_SIZE is not set", place_of({{"RANK", "0"}}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "RANK is not set", place_of({{"WORLD_SIZE", "2"}}));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "MASTER_ADDR",
                   place_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}));
}

TEST(Place, TheFirstHostOfANodeList) {
  EXPECT_EQ(dist::first_host("alone"), "alone");
  EXPECT_EQ(dist::first_host("a,b,c"), "a");
  EXPECT_EQ(dist::first_host("node[001-004,007],login"), "node001");
  EXPECT_EQ(dist::first_host("node[12,15-16]"), "node12");
  EXPECT_EQ(dist::first_host("rack[1-2]node[05-07].cluster"), "rack1node05.cluster");
  EXPECT_EQ(dist::first_host("broken["), "broken");
  EXPECT_EQ(dist::first_host(""), "");
}

}  // namespace
}  // namespace lft::place_test
