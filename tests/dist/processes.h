// A run over several processes of the test program itself. A fault that no recipe can request may
// be planted in the last of them.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dist/threads.h"
#include "src/io/files.h"
#include "support/child.h"
#include "train/run_files.h"

namespace lft::test {

/// Faults that a rank inflicts on itself, see test_shared_run.cpp.
struct Plant {
  std::string what = {};                    // inf, oom, gather, interrupt, stop; empty: nothing
  int64_t step = 0, times = 1;              // of stop: the signal, before anything is read
  int64_t rank = -1;                        // -1: the last
  std::vector<std::string> variables = {};  // on that rank only
};

/// The exit codes by rank. The output of rank r is in <output_dir>.err<r>.
inline std::vector<int> run_processes(const Recipe& recipe, int64_t count, bool resume = false,
                                      const Plant& plant = {}) {
  const std::string file = recipe.output_dir + ".yaml";
  io::write_file_atomic(file, dump_recipe(recipe));
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Child>> children;
  for (int64_t rank = 0; rank < count; ++rank) {
    std::vector<std::string> environment = {"OMP_NUM_THREADS=1",
                                            "LFT_TEST_RECIPE=" + file,
                                            "LFT_TEST_RESUME=" + std::string(resume ? "1" : ""),
                                            "MASTER_ADDR=127.0.0.1",
                                            "MASTER_PORT=" + port,
                                            "RANK=" + std::to_string(rank),
                                            "LOCAL_RANK=" + std::to_string(rank),
                                            "WORLD_SIZE=" + std::to_string(count)};
    if (rank == (plant.rank < 0 ? count - 1 : plant.rank)) {
      environment.insert(environment.end(), plant.variables.begin(), plant.variables.end());
      environment.push_back("LFT_TEST_PLANT=" + plant.what);
      environment.push_back("LFT_TEST_STEP=" + std::to_string(plant.step));
      environment.push_back("LFT_TEST_TIMES=" + std::to_string(plant.times));
    }
    const std::string log = recipe.output_dir, number = std::to_string(rank);
    children.push_back(std::make_unique<Child>(
        std::vector<std::string>{"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                 "--gtest_filter=Rank.DISABLED_Trains"},
        log + ".out" + number, log + ".err" + number, environment));
  }
  std::vector<int> codes;
  for (const auto& child : children) codes.push_back(child->wait());
  return codes;
}

inline std::string said_by(const Recipe& recipe, int64_t rank) {
  return slurp(recipe.output_dir + ".err" + std::to_string(rank));
}

/// Number of error blocks printed by all processes.
inline int error_blocks(const Recipe& recipe, int64_t count) {
  int blocks = 0;
  for (int64_t rank = 0; rank < count; ++rank) {
    const std::string said = said_by(recipe, rank);
    for (size_t at = said.find("error:"); at != std::string::npos; at = said.find("error:", at + 1))
      ++blocks;
  }
  return blocks;
}

/// metrics.jsonl without times, memory figures and the folder name.
inline std::string timeless_metrics(const std::string& dir) {
  std::string text;
  for (Json& line : metric_lines(dir)) {
    const std::string event = line.value("event", "");
    if (event == "memory" || event == "resume") continue;
    for (const char* field :
         {"step_s", "tokens_per_s", "eval_s", "checkpoint_s", "path", "incident"})
      line.erase(field);
    text += line.dump() + "\n";
  }
  return text;
}

}  // namespace lft::test
