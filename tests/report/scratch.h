// A folder for one test, removed with its contents.
#pragma once
#include <filesystem>
#include <random>
#include <string>

namespace lft::test {

class Scratch {
 public:
  Scratch()
      : dir_(std::filesystem::temp_directory_path() /
             ("lft_report_" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(dir_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

 private:
  std::filesystem::path dir_;
};

}  // namespace lft::test
