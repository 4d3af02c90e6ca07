// The first byte is the kind of the rest: 'j' a merge patch to index.json, 't' and 'u'
// changes of single bytes of the shard of samples or of images (two bytes of offset and a byte to
// combine), 'p' a packed sample, 'x' packed pixels.
#include "src/data/prepared.h"
#include "src/data/prepared_write.h"
#include "src/data/store/packed_pixels.h"
#include "src/data/store/stored_sample.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "tests/data/fixtures.h"
#include "tests/fuzz/memory_folder.h"
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
    return {.id = id(index),
            .where = "x:1",
            .conversation = {text::messages_of({{"a", "b"}})},
            .images = {}};
  }
  std::string hash() const override { return ""; }
};

std::string with_changes(std::string bytes, std::string_view changes) {
  for (size_t i = 0; i + 3 <= changes.size(); i += 3) {
    const auto high = static_cast<uint8_t>(changes[i]), low = static_cast<uint8_t>(changes[i + 1]);
    char& byte = bytes[(high * 256u + low) % bytes.size()];
    byte = static_cast<char>(byte ^ changes[i + 2]);
  }
  return bytes;
}

/// The directory to read: the output of lft prepare for them, with changes.
struct Folder : MemoryFolder {
  EncodeOptions options = test::small_options();
  test::TempDir written;
  Json index;

  Folder() {
    options.skip_bad = true;
    prepare_dataset(TwoSamples(), options, written.path());
    index = read_json_file(written.file("index.json"));
  }
  void fill(char which, std::string_view bytes) {
    Json changed = index;
    if (which == 'j') changed.merge_patch(parse_json(bytes, "patch"));
    put("index.json", changed.dump());
    for (const auto& [kind, letter] : {std::pair("shard", 't'), {"images", 'u'}}) {
      const std::string name = shard_name(kind, 0);
      put(name, with_changes(read_file(written.file(name)),
                             which == letter ? bytes : std::string_view()));
    }
  }
};

/// Reads every sample; a refused one does not end the loop.
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

bool packed_sample(std::string_view bytes) {
  const auto sample = unpack_sample({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!sample) return false;
  const std::vector<uint8_t> again = pack_sample(*sample);
  expect(std::string_view(reinterpret_cast<const char*>(again.data()), again.size()) == bytes,
         "a sample packs to what it was unpacked from");
  for (const int64_t tokens : {int64_t{0}, int64_t{7}, std::ssize(sample->ids)}) {
    const auto expanded = expand_sample(*sample, test::kImage, tokens);
    expect(!expanded || (std::ssize(expanded->input_ids) == tokens &&
                         expanded->labels.size() == expanded->input_ids.size()),
           "so many tokens, and a label for each");
  }
  return true;
}

bool packed_pixels(std::string_view bytes) {
  std::vector<uint8_t> pixels;
  return unpack_pixels({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, {3, 8, 8},
                       pixels);
}

}  // namespace

bool prepared(std::string_view bytes) {
  static Folder folder;
  const char which = bytes.empty() ? ' ' : bytes[0];
  const std::string_view rest = bytes.substr(bytes.empty() ? 0 : 1);
  if (which == 'p') return packed_sample(rest);
  if (which == 'x') return packed_pixels(rest);
  bool all = false;
  const bool opens = reads(ErrorKind::kInput, [&] {
    folder.fill(which, rest);
    all = read_samples(*open_prepared(folder.path(), folder.options));
  });
  return opens && all;
}

}  // namespace lft::fuzz
