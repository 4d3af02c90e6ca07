// The project's layers, checked from the includes. One table defines which folder may use which:
// the block "folder: the folders it may use" in src/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "house/sources.h"
#include "support/temp_dir.h"

namespace lft::layers_test {
namespace {

namespace fs = std::filesystem;
using house::Include;

const fs::path kRoot = LFT_SOURCE_DIR;
const std::vector<std::string> kLayers = {"kernels", "models", "src"};
constexpr char kTableHead[] = "folder: the folders it may use";

struct Row {
  std::string folder;
  std::vector<std::string> allowed;
};

/// The rows between the line `kTableHead` and the end of its block. A line that begins with a space
/// continues the row before it; one that begins with # is a heading.
std::vector<Row> read_table(const std::string& page) {
  std::vector<Row> rows;
  bool within = false;
  for (const std::string& line : house::lines_of(page)) {
    if (line == kTableHead) {
      within = true;
      continue;
    }
    if (!within) continue;
    if (line.starts_with("```")) break;
    if (line.empty() || line[0] == '#') continue;
    std::string folders = line;
    if (line[0] != ' ') {
      const size_t colon = std::min(line.find(':'), line.size());
      rows.push_back({.folder = line.substr(0, colon), .allowed = {}});
      folders = colon < line.size() ? line.substr(colon + 1) : "";
    }
    if (rows.empty()) continue;
    std::istringstream words(folders);
    for (std::string word; words >> word;) rows.back().allowed.push_back(word);
  }
  return rows;
}

/// Violations of this table in the tree below `root`, one line each.
std::vector<std::string> layer_faults(const fs::path& root, const std::vector<Row>& rows) {
  std::vector<std::string> faults;
  std::map<std::string, std::set<std::string>> allowed;
  for (const Row& row : rows) {
    if (allowed.contains(row.folder)) faults.push_back(row.folder + " has two lines in the table");
    if (!fs::is_directory(root / row.folder))
      faults.push_back(row.folder + " of the table does not exist");
    for (const std::string& name : row.allowed) {
      if (!allowed.contains(name))
        faults.push_back(row.folder + " may use " + name + ", which does not stand before it");
    }
    allowed[row.folder].insert(row.allowed.begin(), row.allowed.end());
  }
  std::set<std::string> missing;
  for (const std::string& file : house::sources_below(root, kLayers)) {
    const std::string folder = house::folder_of(file);
    if (!allowed.contains(folder)) missing.insert(folder);
  }
  for (const std::string& folder : missing) faults.push_back(folder + " is not in the table");
  for (const Include& include : house::includes_below(root, kLayers)) {
    const std::string target = house::folder_of(include.target);
    const std::string top = include.target.substr(0, include.target.find('/'));
    const std::string said = include.file + " includes " + include.target;
    if (std::find(kLayers.begin(), kLayers.end(), top) == kLayers.end()) {
      if (include.quoted) faults.push_back(said + ", not by its path from the root");
      continue;
    }
    const std::string folder = house::folder_of(include.file);
    if (folder != target && allowed.contains(folder) && !allowed[folder].contains(target))
      faults.push_back(said);
  }
  return faults;
}

std::vector<std::string> layer_faults(const fs::path& root, const std::string& page) {
  return layer_faults(root, read_table(page));
}

using Faults = std::vector<std::string>;

void expect_none(const std::string& folder, const std::vector<std::string>& forbidden) {
  const auto includes = house::includes_below(kRoot, {folder});
  ASSERT_FALSE(includes.empty()) << folder;
  for (const Include& include : includes) {
    for (const std::string& prefix : forbidden)
      EXPECT_FALSE(include.target.starts_with(prefix))
          << include.file << " includes " << include.target;
  }
}

}  // namespace

TEST(Layers, EveryIncludeIsAllowedByTheTable) {
  const std::vector<Row> rows = read_table(house::slurp(kRoot / "src/README.md"));
  EXPECT_GE(rows.size(), 40u);
  EXPECT_EQ(layer_faults(kRoot, rows), Faults());
}

TEST(Layers, TheTableIsReadInItsBlockOnly) {
  const std::vector<Row> rows = read_table(
      "src/x: no row\n```\nfolder: the folders it may use\n# the lowest\na/b:\na/c: a/b\na/d: a/b\n"
      "  a/c\n```\nsrc/y: a/b\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].folder, "a/b");
  EXPECT_EQ(rows[0].allowed, Faults());
  EXPECT_EQ(rows[2].folder, "a/d");
  EXPECT_EQ(rows[2].allowed, (Faults{"a/b", "a/c"}));
}

TEST(Layers, EveryBreachOfTheTableIsNamed) {
  test::TempDir tree;
  tree.write("kernels/add/add.h", "#pragma once\n#include <cstdint>\n");
  tree.write("models/ops/add.h", "#include \"kernels/add/add.h\"\n#include \"models/ops/b.h\"\n");
  tree.write("src/io/read.cpp", "#include <string>\n#include \"models/ops/add.h\"\n");
  const std::string head = "folder: the folders it may use\n";
  const auto faults = [&](const std::string& table) {
    return layer_faults(tree.path(), head + table);
  };
  EXPECT_EQ(faults("kernels/add:\nmodels/ops: kernels/add\nsrc/io: models/ops\n"), Faults());
  EXPECT_EQ(faults("kernels/add:\nmodels/ops: kernels/add\nsrc/io: kernels/add\n"),
            Faults{"src/io/read.cpp includes models/ops/add.h"});
  EXPECT_EQ(faults("kernels/add:\nmodels/ops: kernels/add\n"),
            Faults{"src/io is not in the table"});
  EXPECT_EQ(faults("kernels/add:\nmodels/ops: kernels/add\nsrc/io: models/ops\nsrc/gone:\n"),
            Faults{"src/gone of the table does not exist"});
  EXPECT_EQ(faults("kernels/add:\nsrc/io: models/ops\nmodels/ops: kernels/add\n"),
            Faults{"src/io may use models/ops, which does not stand before it"});
  EXPECT_EQ(faults("kernels/add:\nkernels/add:\nmodels/ops: kernels/add\nsrc/io: models/ops\n"),
            Faults{"kernels/add has two lines in the table"});
  tree.write("src/io/read.h", "#include \"read_more.h\"\n");
  EXPECT_EQ(faults("kernels/add:\nmodels/ops: kernels/add\nsrc/io: models/ops\n"),
            Faults{"src/io/read.h includes read_more.h, not by its path from the root"});
}

TEST(Layers, KernelsKnowNeitherTorchNorTheLayersAbove) {
  expect_none("kernels", {"models/", "src/", "torch/", "ATen/", "c10/", "nlohmann/", "yaml-cpp/"});
}

/// Other code asks whether a device is the CPU, or for a capability, so that a simulated
/// device (tests/stand_in) takes the same path as a GPU.
TEST(Layers, OnlyTheFilesOfCudaAskForCuda) {
  const std::vector<std::string> of_cuda = {
      "models/ops/attention/cudnn_attention.cpp",  // cuDNN is CUDA's
      "models/ops/weight/fp8.cpp",         // compute capability, for LibTorch's FP8 products
      "src/dist/nccl.cpp",                 // devices that communicate by NCCL
      "src/dist/nccl_module/module.cpp",   // memory shared between processes
      "src/train/machine/cuda_graph.cpp",  // graphs and their memory
      "src/train/machine/device.cpp",      // loads LibTorch's CUDA library, queries the driver
  };
  size_t read = 0;
  for (const char* folder : {"models", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string file = fs::relative(entry.path(), kRoot);
      if (!entry.is_regular_file() || entry.path().extension() == ".md" ||
          std::find(of_cuda.begin(), of_cuda.end(), file) != of_cuda.end())
        continue;
      ++read;
      int number = 0;
      for (const std::string& line : house::lines_of(house::slurp(entry.path()))) {
        ++number;
        for (const char* word :
             {"is_cuda()", "kCUDA", "DeviceType::CUDA", "c10/cuda/", "ATen/cuda/"}) {
          EXPECT_EQ(line.find(word), std::string::npos) << file << ":" << number << ": " << line;
        }
      }
    }
  }
  EXPECT_GT(read, 100u);
}

TEST(Layers, ModelsKnowNoFilesNoYamlNoTraining) {
  expect_none("models", {"src/", "yaml-cpp/", "opencv2/", "fstream", "filesystem"});
}

TEST(Layers, OnlyTheOuterSideOfTorchIsKeptOutOfPlainFolders) {
  for (const char* folder : {"src/base", "src/io", "src/recipe", "src/text", "src/report"})
    expect_none(folder, {"torch/", "ATen/", "c10/"});
}

}  // namespace lft::layers_test
