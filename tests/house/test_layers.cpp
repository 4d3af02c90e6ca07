// The house's layers, read from the includes: kernels <- models <- src, and the order of the
// folders within src.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

struct Include {
  std::string file;    // relative to the repository
  std::string target;  // what stands between the quotes or angle brackets
};

std::vector<Include> includes_below(const std::string& folder) {
  std::vector<Include> out;
  const fs::path root = LFT_SOURCE_DIR;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh")
      continue;
    std::ifstream stream(entry.path());
    for (std::string line; std::getline(stream, line);) {
      if (line.rfind("#include ", 0) != 0 || line.size() < 12) continue;
      const size_t end = line.find_first_of("\">", 10);
      out.push_back({fs::relative(entry.path(), root), line.substr(10, end - 10)});
    }
  }
  return out;
}

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.rfind(prefix, 0) == 0;
}

void expect_none(const std::string& folder, const std::vector<std::string>& forbidden) {
  const auto includes = includes_below(folder);
  ASSERT_FALSE(includes.empty()) << folder;
  for (const Include& include : includes) {
    for (const std::string& prefix : forbidden)
      EXPECT_FALSE(starts_with(include.target, prefix))
          << include.file << " includes " << include.target;
  }
}

}  // namespace

TEST(Layers, KernelsKnowNeitherTorchNorTheLayersAbove) {
  expect_none("kernels", {"models/", "src/", "torch/", "ATen/", "c10/", "nlohmann/", "yaml-cpp/"});
}

/// Elsewhere code asks whether a device is the CPU, or what it can do: so that a device that is no
/// GPU (tests/stand_in) goes the way of a GPU.
TEST(Layers, OnlyTheFilesOfCudaAskForCuda) {
  const std::vector<std::string> of_cuda = {
      "models/ops/weight/fp8.cpp",         // compute capability, for LibTorch's FP8 products
      "src/train/machine/cuda_graph.cpp",  // graphs and their memory
      "src/train/machine/device.cpp",      // opens LibTorch's CUDA library, asks the driver
  };
  const fs::path root = LFT_SOURCE_DIR;
  size_t read = 0;
  for (const char* folder : {"models", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string file = fs::relative(entry.path(), root);
      if (!entry.is_regular_file() ||
          std::find(of_cuda.begin(), of_cuda.end(), file) != of_cuda.end())
        continue;
      ++read;
      std::ifstream stream(entry.path());
      int number = 0;
      for (std::string line; std::getline(stream, line);) {
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

TEST(Layers, FoldersOfSrcUseOnlyWhatStandsBelow) {
  const std::map<std::string, std::vector<std::string>> above = {
      {"base",
       {"io", "recipe", "text", "hf", "data", "report", "checkpoint", "train", "debug", "cli"}},
      {"io", {"recipe", "text", "hf", "data", "report", "checkpoint", "train", "debug", "cli"}},
      {"recipe", {"text", "hf", "data", "report", "checkpoint", "train", "debug", "cli"}},
      {"text", {"recipe", "hf", "data", "report", "checkpoint", "train", "debug", "cli"}},
      {"hf", {"recipe", "text", "data", "report", "checkpoint", "train", "debug", "cli"}},
      {"data", {"hf", "report", "checkpoint", "train", "debug", "cli"}},
      {"report", {"recipe", "text", "hf", "data", "checkpoint", "train", "debug", "cli"}},
      {"checkpoint", {"text", "data", "report", "train", "debug", "cli"}},
      {"train", {"debug", "cli"}},
      {"debug", {"cli"}}};
  for (const auto& [folder, forbidden] : above) {
    std::vector<std::string> prefixes;
    for (const std::string& name : forbidden) prefixes.push_back("src/" + name + "/");
    expect_none("src/" + folder, prefixes);
  }
}

TEST(Layers, OnlyTheOuterSideOfTorchIsKeptOutOfPlainFolders) {
  for (const char* folder : {"src/base", "src/io", "src/recipe", "src/text", "src/report"})
    expect_none(folder, {"torch/", "ATen/", "c10/"});
}
