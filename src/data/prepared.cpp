#include "src/data/prepared.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/data/rows/row_reader.h"
#include "src/data/store/packed_pixels.h"
#include "src/data/store/record_file.h"
#include "src/data/store/stored_sample.h"
#include "src/io/files.h"
#include "src/text/chat/named_form.h"

namespace lft::data {
namespace {

/// kInput for a sample that could not be read when the data was prepared.
[[noreturn]] void refuse_bad_row(const Row& row, const std::string& reason) {
  refuse(ErrorKind::kInput, "a sample that was bad when the data was prepared",
         row.where + " (id " + quote_text(row.id, 80) + ")", reason, {},
         "fix it and run lft prepare again, or set data.on_bad_sample: skip");
}

/// kInput with each rule in which `stored`, from an index.json, differs from the run's.
void check_made_for(const io::Json& stored, const EncodeOptions& options, const std::string& path) {
  std::vector<std::string> found, expected;
  io::Json wanted = sample_rules(options);
  // Rows without special tokens in a text are the same under every setting.
  if (stored.is_object() && stored.contains(kSpecialTokensRule))
    wanted.emplace(kSpecialTokensRule, nullptr);
  else
    wanted.erase(kSpecialTokensRule);
  if (stored.is_object() && stored.contains(kAlphaRule)) wanted.emplace(kAlphaRule, "drop");
  for (const char* rule : {kPairsRule, kLabelledRule})
    if (stored.is_object() && stored.contains(rule)) wanted.emplace(rule, false);
  for (const auto& [key, value] : wanted.items()) {
    const io::Json other = stored.is_object() && stored.contains(key) ? stored[key] : io::Json();
    if (other == value) continue;
    found.push_back(key + " " + other.dump());
    expected.push_back(key + " " + value.dump());
  }
  if (found.empty()) return;
  refuse(ErrorKind::kInput, "the prepared data was made for other settings than this run's", path,
         join(found), join(expected), "run lft prepare again with this recipe");
}

/// Checks what the model does not: ids below the vocabulary, image positions for the images.
void check_prepared(const Sample& sample, const EncodeOptions& options, const std::string& where) {
  int64_t image_positions = 0, expected = 0;
  for (const int64_t id : sample.input_ids) {
    if (id < 0 || id >= options.config.text.vocab)
      refuse_damaged(where, "token id " + std::to_string(id),
                     "below " + std::to_string(options.config.text.vocab));
    image_positions += id == options.config.image_token;
  }
  for (const PixelImage& image : sample.images) expected += image.positions;
  if (image_positions == expected) return;
  refuse_damaged(where,
                 std::to_string(image_positions) + " image positions for " +
                     std::to_string(sample.images.size()) + " images",
                 std::to_string(expected));
}

/// Record files in sequence, with consecutive record numbers.
class RecordFiles {
 public:
  void add(RecordFile file, int64_t count) {
    starts_.push_back(size_);
    size_ += count;
    files_.push_back(std::move(file));
  }
  int64_t size() const { return size_; }
  /// The file of a record, and the record's number in that file.
  std::pair<const RecordFile&, int64_t> place(int64_t index) const {
    const auto after = std::ranges::upper_bound(starts_, index);
    const auto file = static_cast<size_t>(after - starts_.begin()) - 1;
    return {files_[file], index - starts_[file]};
  }

 private:
  std::vector<RecordFile> files_;
  std::vector<int64_t> starts_;
  int64_t size_ = 0;
};

class PreparedDataset : public Dataset {
 public:
  PreparedDataset(const std::string& path, const EncodeOptions& options, const std::string& text)
      : path_(path), hash_(sha256(text)), options_(options) {
    const std::string where = path + "/index.json";
    const io::Json index = io::parse_json(text, where);
    check_made_for(index.value("made_for", io::Json()), options, path);
    open(index, "shards", "shard", kSampleNumbers, samples_);
    open(index, "image_shards", "images", kImageNumbers, images_);
    images_shown_ = io::json_int(index, "images_shown", 0, INT64_MAX, where);
    const int64_t bad = io::json_int(index, "first_bad", -1, samples_.size() - 1, where);
    if (samples_.size() % sides() != 0)
      refuse_damaged(where, std::to_string(samples_.size()) + " sides of pairs", "an even number");
    if (bad >= 0 && !options_.skip_bad) get(bad / sides());
  }

  int64_t size() const override { return samples_.size() / sides(); }
  std::string hash() const override { return hash_; }
  bool any_image() const override { return images_shown_ > 0; }
  int64_t images_of(int64_t index) const override { return record(index)[4]; }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  std::vector<uint64_t> image_keys(int64_t index) const override {
    std::vector<uint64_t> keys;
    for (int64_t side = 0; side < sides(); ++side) {
      for (const int32_t image : stored(index, record(index, side), side).images) {
        const auto [file, i] = place_of_image(image, index);
        keys.push_back(static_cast<uint64_t>(file.record(i)[1]));  // the digest of its pixels
      }
    }
    return keys;
  }
  std::string id(int64_t index) const override { return stored(index, record(index)).id; }
  Row row(int64_t index) const override { return row_of(stored(index, record(index)), index); }

  Sample get(int64_t index) const override {
    Sample sample = side(index, 0);
    if (options_.pairs) sample.rejected.push_back(side(index, 1));
    return sample;
  }

  SampleLength length(int64_t index) const override {
    SampleLength length = side_length(index, 0);
    if (options_.pairs) length.add_side(side_length(index, 1));
    return length;
  }

 private:
  int64_t sides() const { return options_.pairs ? 2 : 1; }

  Sample side(int64_t index, int64_t which) const {
    const std::vector<int64_t> numbers = record(index, which);
    const StoredSample kept = stored(index, numbers, which);
    if (numbers[2] == 0) refuse_bad(kept, index);
    std::optional<Sample> sample = expand_sample(kept, options_.config.image_token, numbers[2]);
    if (!sample || static_cast<int64_t>(kept.images.size()) != numbers[4])
      refuse_damaged(place_of(index), "a sample that contradicts itself", "what lft prepare wrote");
    sample->shared = numbers[8];
    for (const int32_t image : kept.images) sample->images.push_back(image_at(image, index));
    if (options_.labelled) sample->desirable = row_of(kept, index).desirable;
    check_prepared(*sample, options_, place_of(index) + " (id " + quote_text(sample->id, 80) + ")");
    return std::move(*sample);
  }

  SampleLength side_length(int64_t index, int64_t which) const {
    const std::vector<int64_t> numbers = record(index, which);
    if (numbers[2] == 0) refuse_bad(stored(index, numbers, which), index);
    return {.tokens = static_cast<int32_t>(numbers[2]),
            .supervised = static_cast<int32_t>(numbers[3]),
            .images = static_cast<int32_t>(numbers[4]),
            .longest = static_cast<int32_t>(numbers[2]),
            .shared = static_cast<int32_t>(numbers[8]),
            .values = numbers[5],
            .tower = numbers[6],
            .placed = numbers[7]};
  }

  std::string place_of(int64_t index) const { return path_ + "[" + std::to_string(index) + "]"; }

  void open(const io::Json& index, const char* key, const char* kind, int64_t numbers,
            RecordFiles& files) {
    const std::string where = path_ + "/index.json";
    const io::Json& shards = io::json_array(index, key, where);
    for (size_t i = 0; i < shards.size(); ++i) {
      const int64_t count = io::json_int(shards[i], "count", 1, 1ll << 40, where);
      files.add(RecordFile(path_ + "/" + shard_name(kind, i), count, numbers,
                           io::json_string(shards[i], "records", where), pool_),
                count);
    }
  }

  std::vector<int64_t> record(int64_t index, int64_t side = 0) const {
    if (index < 0 || index >= size()) throw std::out_of_range("sample " + std::to_string(index));
    const auto [file, i] = samples_.place(index * sides() + side);
    return file.record(i);
  }

  StoredSample stored(int64_t index, const std::vector<int64_t>& numbers, int64_t side = 0) const {
    const std::vector<uint8_t> bytes = samples_.place(index * sides() + side).first.bytes(numbers);
    std::optional<StoredSample> sample = unpack_sample(bytes);
    if (!sample) refuse_damaged(place_of(index), "no sample", "what lft prepare wrote");
    return std::move(*sample);
  }

  Row row_of(const StoredSample& sample, int64_t index) const {
    return row_from_json(io::parse_json(sample.row, place_of(index)), place_of(index));
  }

  [[noreturn]] void refuse_bad(const StoredSample& sample, int64_t index) const {
    const io::Json json = io::parse_json(sample.row, place_of(index));
    refuse_bad_row(row_from_json(json, place_of(index)),
                   io::json_string(json, "bad", place_of(index)));
  }

  [[noreturn]] void refuse_image(int64_t number, int64_t index) const {
    refuse_damaged(place_of(index), "image " + std::to_string(number),
                   "an image that lft prepare wrote");
  }

  std::pair<const RecordFile&, int64_t> place_of_image(int64_t number, int64_t index) const {
    if (number < 0 || number >= images_.size()) refuse_image(number, index);
    return images_.place(number);
  }

  PixelImage image_at(int64_t number, int64_t index) const {
    const auto [file, i] = place_of_image(number, index);
    const std::vector<int64_t> numbers = file.record(i);
    std::optional<PixelImage> image = image_of_numbers({numbers.data() + 2, size_t{kShapeNumbers}});
    const auto fixed = options_.images->fixed_shape();
    const auto fits = [&](const family::ImageShape& shape) {
      return !fixed || (shape.tiles == fixed->tiles && shape.height == fixed->height &&
                        shape.width == fixed->width);
    };
    if (!image || !fits(image->shape)) refuse_image(number, index);
    const PlaneShape planes{3 * image->shape.tiles, image->shape.height, image->shape.width};
    if (!unpack_pixels(file.bytes(numbers), planes, image->chw)) refuse_image(number, index);
    return std::move(*image);
  }

  std::string path_, hash_;
  EncodeOptions options_;
  mutable FilePool pool_;
  RecordFiles samples_, images_;
  int64_t images_shown_ = 0;
};

}  // namespace

std::string shard_name(const std::string& kind, size_t number) {
  const std::string digits = std::to_string(number);
  return kind + "-" + std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits +
         ".safetensors";
}

bool is_prepared(const std::string& path) {
  const std::string index = path + "/index.json";
  return io::path_exists(index) &&
         io::read_file(index, kMostIndexBytes).find("\"lft_prepared\"") != std::string::npos;
}

io::Json sample_rules(const EncodeOptions& options) {
  const bool is_form = text::is_named_form(options.chat->name());
  io::Json made = {{"template", is_form ? options.chat->name() : "jinja"},
                   {"template_hash", options.chat->hash()},
                   {"max_tokens", options.max_tokens},
                   {"tokenizer", options.tokenizer_fingerprint},
                   {"eos", options.eos},
                   {"image_token", options.config.image_token},
                   {"vocab_size", options.config.text.vocab}};
  made.update(options.images->identity());
  made["image_fit"] = options.image_fit;
  if (options.image_limits.alpha == io::Alpha::kWhite) made[kAlphaRule] = "white";
  if (options.pairs) made[kPairsRule] = true;
  if (options.labelled) made[kLabelledRule] = true;
  if (options.special_tokens != SpecialTokensInText::kError)
    made[kSpecialTokensRule] =
        options.special_tokens == SpecialTokensInText::kText ? "text" : "special";
  return made;
}

std::unique_ptr<Dataset> open_prepared(const std::string& path, const EncodeOptions& options) {
  if (!is_prepared(path)) {
    refuse(ErrorKind::kInput, "a directory that lft prepare did not write", path,
           "no index.json of lft prepare", "a JSON or JSONL file, or a prepared directory",
           "name the file in it, or the directory that lft prepare was given as --out");
  }
  const std::string where = path + "/index.json", text = io::read_file(where, kMostIndexBytes);
  const io::Json index = io::parse_json(text, where);
  const io::Json version = index.is_object() ? index.value("lft_prepared", io::Json()) : io::Json();
  if (version != kPreparedVersion) {
    refuse_damaged(where, "lft_prepared " + (version.is_null() ? "absent" : version.dump()),
                   std::to_string(kPreparedVersion));
  }
  return std::make_unique<PreparedDataset>(path, options, text);
}

}  // namespace lft::data
