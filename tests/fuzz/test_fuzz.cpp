// Every fuzz target on its corpus, and on a few thousand random mutations of it with a fixed
// seed. libFuzzer finds more (LFT_FUZZ); this keeps the targets working and runs anywhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "tests/fuzz/targets.h"

namespace lft::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSeed = 16 << 10;

struct Target {
  std::string name;
  bool (*run)(std::string_view);
  std::vector<std::string> more_seeds;  // besides corpus/<name>: files or folders of tests/goldens
  int inputs;
};

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

const std::vector<Target> kTargets = {
#ifdef LFT_HAVE_ARROW
    {"arrow", arrow, {}, 1000},
#endif
    {"chat_template", chat_template, {}, 3000},
    {"charsmap", charsmap, {}, 3000},
    {"config", config, {}, 2000},
    {"gguf", gguf, {}, 5000},
    {"gguf_vocabulary", gguf_vocabulary, {"tokenizers/byte_level_llama3/tokenizer.json"}, 300},
    {"http", http, {}, 2000},
    {"image", image, {"images"}, 3000},
    {"incident", incident, {}, 2000},
    {"index", index, {}, 1000},
    {"json", json, {}, 5000},
    {"manifest", manifest, {}, 2000},
    {"metrics", metrics, {}, 200},
    {"model_files", model_files, {}, 1000},
    {"prepared", prepared, {}, 2000},
    {"processor", processor, {}, 2000},
    {"recipe", recipe, {}, 2000},
    {"rows", rows, {}, 2000},
    {"saved_state", saved_state, {}, 2000},
    {"safetensors", safetensors, {"all_dtypes.safetensors"}, 5000},
    {"tar", tar, {}, 2000},
    {"tokenizer",
     tokenizer,
     {"tokenizers/byte_level_llama3/tokenizer.json", "tokenizers/llama_legacy/tokenizer.json"},
     1000},
};

struct Seed {
  std::string name, bytes;
};

void add_seed(const fs::path& file, std::vector<Seed>* seeds) {
  std::ifstream in(file, std::ios::binary);
  Seed seed{file.filename(), {std::istreambuf_iterator<char>(in), {}}};
  if (seed.bytes.size() <= kMaxSeed) seeds->push_back(std::move(seed));
}

std::vector<Seed> seeds_of(const Target& target) {
  const fs::path tests = fs::path(LFT_SOURCE_DIR) / "tests";
  std::vector<fs::path> places = {tests / "fuzz/corpus" / target.name};
  for (const std::string& place : target.more_seeds) places.push_back(tests / "goldens" / place);
  std::vector<Seed> seeds;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place)) add_seed(place, &seeds);
    if (!fs::is_directory(place)) continue;
    std::vector<fs::path> files(fs::directory_iterator(place), {});
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) add_seed(file, &seeds);
  }
  return seeds;
}

/// The current input, in a file that is kept if a target fails or crashes on it.
class CurrentInput {
 public:
  explicit CurrentInput(const std::string& name)
      : path_(fs::temp_directory_path() / ("lft-fuzz-" + name + "-" + std::to_string(getpid()))),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  CurrentInput(const CurrentInput&) = delete;
  CurrentInput& operator=(const CurrentInput&) = delete;
  ~CurrentInput() {
    close(fd_);
    if (!keep_) fs::remove(path_);
  }
  /// Whether the target accepted the input.
  bool run(const Target& target, const std::string& bytes) {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, bytes.data(), bytes.size(), 0) < 0)
      throw std::runtime_error("cannot write " + path_.string());
    try {
      return target.run(bytes);
    } catch (const std::exception& error) {
      keep_ = true;
      ADD_FAILURE() << error.what() << "\nthe input is in " << path_;
      throw;
    }
  }

 private:
  fs::path path_;
  int fd_;
  bool keep_ = false;
};

/// Flips, cuts, repeats, extremes, and pieces of another input.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t below(size_t end) { return end == 0 ? 0 : random_() % end; }

  std::string mutate(std::string bytes, const std::string& other) {
    for (size_t edits = 1 + below(2); edits > 0; --edits) edit(&bytes, other);
    return bytes;
  }

 private:
  void edit(std::string* bytes, const std::string& other) {
    constexpr std::array<const char*, 8> kNumbers = {
        "0",     "-1", "2147483648", "4294967297", "9223372036854775807", "18446744073709551615",
        "1e999", "0.5"};
    const size_t at = below(bytes->size() + 1);
    switch (below(8)) {
      case 0:
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>(below(256));
        return;
      case 2:
        bytes->resize(at);
        return;
      case 3:
        bytes->erase(at, 1 + below(16));
        return;
      case 4:
        bytes->insert(at, bytes->substr(below(bytes->size()), 1 + below(64)));
        return;
      case 5:
        bytes->replace(at, below(64), other, below(other.size()), 1 + below(64));
        return;
      case 6:
        replace_number(bytes, at, kNumbers[below(kNumbers.size())]);
        return;
      default:
        bytes->replace(at, std::min<size_t>(4, bytes->size() - at), 4,
                       static_cast<char>(below(2) == 0 ? 0 : 0xff));
    }
  }

  static void replace_number(std::string* bytes, size_t at, const char* number) {
    const size_t begin = bytes->find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(bytes->find_first_not_of("0123456789", begin), bytes->size());
    bytes->replace(begin, end - begin, number);
  }

  std::mt19937_64 random_;
};

class Fuzz : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override { ::testing::internal::CaptureStderr(); }  // a reader may print its input
  void TearDown() override { ::testing::internal::GetCapturedStderr(); }
};

TEST_P(Fuzz, CorpusIsReadOrRefusedAsItsNamesSay) {
  CurrentInput input(GetParam().name);
  int good = 0, bad = 0;
  for (const Seed& seed : seeds_of(GetParam())) {
    SCOPED_TRACE(seed.name);
    const bool taken = input.run(GetParam(), seed.bytes);
    const bool is_good = seed.name.starts_with("good"), is_bad = seed.name.starts_with("bad");
    EXPECT_TRUE(taken || !is_good);
    EXPECT_FALSE(taken && is_bad);
    good += is_good;
    bad += is_bad;
  }
  EXPECT_GE(good, 1);
  EXPECT_GE(bad, 1);
}

TEST_P(Fuzz, WhatChanceMakesOfItIsReadOrRefused) {
  const std::vector<Seed> seeds = seeds_of(GetParam());
  ASSERT_FALSE(seeds.empty());
  CurrentInput input(GetParam().name);
  Mutator mutator(20250131);
  int taken = 0;
  for (int i = 0; i < GetParam().inputs; ++i) {
    const std::string &bytes = seeds[mutator.below(seeds.size())].bytes,
                      &other = seeds[mutator.below(seeds.size())].bytes;
    taken += input.run(GetParam(), mutator.mutate(bytes, other));
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, GetParam().inputs);
}

/// Puts each value at the position of each value of a document, and of the whole. Of a list only
/// the first element is used, and of an object with many keys the first few.
void for_each_change(const nlohmann::json& document,
                     const std::function<void(const std::string& where, const std::string&)>& use) {
  using nlohmann::json;
  const json values[] = {nullptr,
                         5,
                         -1,
                         1e308,
                         0.5,
                         "x",
                         true,
                         "",
                         json::array(),
                         json::object(),
                         json::array({nullptr})};
  constexpr size_t kFew = 64;
  std::vector<json::json_pointer> places = {json::json_pointer()};
  for (size_t i = 0; i < places.size(); ++i) {
    const json::json_pointer place = places[i];
    const json& part = document.at(place);
    for (const json& value : values) {
      json changed = document;
      changed[place] = value;
      use(place.to_string() + " = " + value.dump(), changed.dump());
    }
    if (part.is_array() && !part.empty()) places.push_back(place / 0);
    if (!part.is_object()) continue;
    size_t kept = 0;
    for (const auto& item : part.items())
      if (kept++ < kFew) places.push_back(place / item.key());
  }
}

/// The seeds of a target that are JSON, possibly after a byte for the kind of file.
TEST_P(Fuzz, EveryValueInEveryKeyIsReadOrRefused) {
  CurrentInput input(GetParam().name);
  for (const Seed& seed : seeds_of(GetParam())) {
    if (!seed.name.starts_with("good")) continue;
    const size_t brace = seed.bytes.find('{');
    if (brace > 1) continue;
    const auto document = nlohmann::json::parse(seed.bytes.substr(brace), nullptr, false);
    if (document.is_discarded()) continue;
    for_each_change(document, [&](const std::string& where, const std::string& text) {
      SCOPED_TRACE(seed.name + where);
      input.run(GetParam(), seed.bytes.substr(0, brace) + text);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, ::testing::ValuesIn(kTargets),
                         [](const ::testing::TestParamInfo<Target>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace lft::fuzz
