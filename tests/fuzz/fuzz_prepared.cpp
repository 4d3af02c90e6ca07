// The first byte says which file of a directory that lft prepared the others stand for: 'i' a merge
// patch to index.json, 'r' rows.jsonl (index.json has its hash then), 's' the shard.
#include <unistd.h>

#include "src/base/hash.h"
#include "src/data/prepared.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "tests/data/fixtures.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::data;
using namespace lft::io;
namespace {

/// Two samples, the second with an image.
class TwoSamples : public Dataset {
 public:
  int64_t size() const override { return 2; }
  Sample get(int64_t index) const override {
    Sample sample{.id = id(index),
                  .input_ids = {test::kBos, 70, test::kEos},
                  .labels = {-100, 70, test::kEos},
                  .images = {}};
    if (index == 0) return sample;
    sample.input_ids.insert(sample.input_ids.begin() + 1, 4, test::kImage);
    sample.labels.insert(sample.labels.begin(), 4, -100);
    sample.images.push_back({.shape = {.height = 8, .width = 8},
                             .chw = std::vector<uint8_t>(3 * 8 * 8, 100),
                             .positions = 4});
    return sample;
  }
  std::string id(int64_t index) const override { return std::to_string(index); }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t index) const override {
    return {.id = id(index), .where = "x:1", .turns = {{"a", "b"}}, .images = {}};
  }
  std::string hash() const override { return ""; }
};

/// What lft prepare wrote, and beside it the folder that is read.
struct Folder {
  EncodeOptions options = test::small_options();
  test::TempDir written, read;
  MemoryFile index_file, rows_file, shard_file;
  Json index;
  std::string rows, shard;

  Folder() {
    prepare_dataset(TwoSamples(), options, written.path());
    index = read_json_file(written.file("index.json"));
    rows = read_file(written.file("rows.jsonl"));
    shard = read_file(written.file("shard-00000.safetensors"));
    options.skip_bad = true;
    link("index.json", index_file);
    link("rows.jsonl", rows_file);
    link("shard-00000.safetensors", shard_file);
  }
  void link(const char* name, const MemoryFile& file) {
    if (symlink(file.path().c_str(), read.file(name).c_str()) != 0)
      throw std::runtime_error("cannot make a link");
  }
  void fill(char which, std::string_view bytes) {
    Json changed = index;
    if (which == 'i') changed.merge_patch(parse_json(bytes, "patch"));
    if (which == 'r') changed["rows_sha256"] = sha256(bytes);
    index_file.set(changed.dump());
    rows_file.set(which == 'r' ? bytes : rows);
    shard_file.set(which == 's' ? bytes : shard);
  }
};

/// Every sample; one that is refused does not end it.
bool read_samples(const Dataset& dataset) {
  bool all = true;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    all &= reads(ErrorKind::kInput, [&] {
      const SampleLength length = dataset.length(index);
      const Sample sample = dataset.get(index);
      expect(sample.input_ids.size() == sample.labels.size(), "a label for each token");
      expect(length.tokens == static_cast<int64_t>(sample.input_ids.size()) &&
                 length.supervised == sample.supervised() &&
                 length.images == static_cast<int64_t>(sample.images.size()),
             "length() is that of get()");
    });
  }
  return all;
}

}  // namespace

bool prepared(std::string_view bytes) {
  static Folder folder;
  bool all = false;
  const bool opens = reads(ErrorKind::kInput, [&] {
    folder.fill(bytes.empty() ? ' ' : bytes[0], bytes.substr(bytes.empty() ? 0 : 1));
    all = read_samples(*open_prepared(folder.read.path(), folder.options));
  });
  return opens && all;
}

}  // namespace lft::fuzz
