#include "src/data/prepared_write.h"

#include <filesystem>
#include <map>
#include <unordered_map>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/parallel.h"
#include "src/data/lengths.h"
#include "src/data/loader.h"
#include "src/data/prepared.h"
#include "src/data/rows/row_reader.h"
#include "src/data/same_images.h"
#include "src/data/store/packed_pixels.h"
#include "src/data/store/record_file.h"
#include "src/data/store/stored_sample.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

/// Shards of one kind; each is written when it is full.
class ShardWriter {
 public:
  ShardWriter(std::string folder, std::string kind, int64_t numbers, int64_t shard_bytes)
      : folder_(std::move(folder)),
        kind_(std::move(kind)),
        shard_bytes_(shard_bytes),
        shard_(numbers) {}
  void add(std::span<const uint8_t> bytes, std::span<const int64_t> numbers) {
    shard_.add(bytes, numbers);
    if (shard_.bytes() >= shard_bytes_) flush();
  }
  io::Json finish() {
    if (shard_.count() > 0) flush();
    return written_;
  }

 private:
  void flush() {
    const std::string path = folder_ + "/" + shard_name(kind_, written_.size());
    const int64_t count = shard_.count();
    const std::string records = shard_.write(path);
    written_.push_back({{"count", count}, {"records", records}, {"sha256", sha256_file(path)}});
  }

  std::string folder_, kind_;
  int64_t shard_bytes_;
  RecordFileMaker shard_;
  io::Json written_ = io::Json::array();
};

class PreparedWriter {
 public:
  PreparedWriter(std::string folder, const EncodeOptions& options, int64_t shard_bytes)
      : folder_(std::move(folder)),
        options_(options),
        samples_(folder_, "shard", kSampleNumbers, shard_bytes),
        images_(folder_, "images", kImageNumbers, shard_bytes) {}

  /// Numbers the images of some samples and stores those that are new, packed by all
  /// cores.
  void add_images(const std::vector<const Sample*>& samples) {
    std::vector<const PixelImage*> fresh;
    for (const Sample* sample : samples) {
      for (const PixelImage& image : sample->images) {
        const auto [found, is_new] =
            numbers_.emplace(content_of(image), static_cast<int32_t>(numbers_.size()));
        if (is_new) fresh.push_back(&image);
      }
    }
    std::vector<std::vector<uint8_t>> packed(fresh.size());
    parallel_for(static_cast<int64_t>(fresh.size()), all_cores(), [&](int64_t i) {
      const PixelImage& image = *fresh[static_cast<size_t>(i)];
      packed[static_cast<size_t>(i)] =
          pack_pixels(image.chw, {3 * image.shape.tiles, image.shape.height, image.shape.width});
    });
    for (size_t i = 0; i < fresh.size(); ++i) images_.add(packed[i], shape_numbers(*fresh[i]));
  }

  /// The sample of a row, or a side of a pair. `other`: its other side, if that was added before.
  void add(const Row& row, const Sample& sample, const Sample* other) {
    std::vector<int32_t> images;
    for (const PixelImage& image : sample.images) images.push_back(numbers_.at(content_of(image)));
    SampleLength length = sample_length(sample);
    if (other != nullptr && same_images(sample, *other)) length.share_images();
    tokens_ += length.tokens;
    supervised_ += length.supervised;
    images_shown_ += length.images;
    special_read_ |= sample.special_read;
    put(store_sample(sample, row_to_json(row).dump(), options_.config.image_token,
                     std::move(images)),
        {length.tokens, length.supervised, length.images, length.values, length.tower,
         length.placed, sample.shared});
  }
  void add_bad(const Row& row, const std::string& reason) {
    io::Json json = row_to_json(row);
    json["bad"] = reason;
    if (first_bad_ < 0) first_bad_ = rows_;
    for (int side = 0; side < (options_.pairs ? 2 : 1); ++side)
      put({.id = row.id,
           .row = json.dump(),
           .ids = {},
           .labels = {},
           .image_runs = {},
           .images = {}},
          {0, 0, 0, 0, 0, 0, 0});
  }
  void finish() {
    io::Json made = sample_rules(options_);
    if (options_.special_tokens == SpecialTokensInText::kSpecial && !special_read_)
      made.erase(kSpecialTokensRule);
    const io::Json index = {{"lft_prepared", kPreparedVersion},
                            {"made_for", made},
                            {"samples", rows_},
                            {"first_bad", first_bad_},
                            {"images_shown", images_shown_},
                            {"shards", samples_.finish()},
                            {"image_shards", images_.finish()},
                            {"supervised_tokens", supervised_},
                            {"tokens", tokens_}};
    io::write_file_atomic(folder_ + "/index.json", index.dump(2) + "\n");
  }

 private:
  static std::string content_of(const PixelImage& image) {
    Sha256 hash;
    for (const int64_t number : shape_numbers(image)) hash.update(&number, sizeof number);
    hash.update(image.chw.data(), image.chw.size());
    return hash.hex();
  }
  void put(const StoredSample& sample, std::vector<int64_t> numbers) {
    samples_.add(pack_sample(sample), numbers);
    ++rows_;
  }

  std::string folder_;
  const EncodeOptions& options_;
  ShardWriter samples_, images_;
  std::unordered_map<std::string, int32_t> numbers_;  // image number by content
  int64_t rows_ = 0, first_bad_ = -1, images_shown_ = 0, supervised_ = 0, tokens_ = 0;
  bool special_read_ = false;
};

/// Names the bad samples that are skipped; kInput if there are more than options.max_bad.
class SkippedSamples {
 public:
  explicit SkippedSamples(const EncodeOptions& options) : options_(options) {}
  void add(const Row& row, const std::string& reason) {
    const std::string named = row.where + ": " + reason;
    if (count_++ == 0) first_ = named;
    check_bad_count(options_, count_, "data.train", first_);
    notice("skipped a bad sample: " + named);
  }
  /// The number of them; kInput if no other sample is left.
  int64_t finish(int64_t samples) const {
    if (count_ == samples)
      refuse(ErrorKind::kInput, "all samples are bad", "data.train",
             std::to_string(count_) + ", first " + first_, "at least one sample",
             "fix them; lft validate lists them all");
    return count_;
  }

 private:
  const EncodeOptions& options_;
  int64_t count_ = 0;
  std::string first_;
};

/// The samples of a few rows, valid and bad, in the order of the rows.
void write_group(const Dataset& dataset, const StepSamples& group, int64_t& next,
                 PreparedWriter& writer, SkippedSamples& skipped) {
  std::map<int64_t, std::vector<const Sample*>> good;  // of a pair both sides
  std::vector<const Sample*> samples;
  for (size_t m = 0; m < group.micro.size(); ++m) {
    for (size_t i = 0; i < group.micro[m].size(); ++i) {
      good[group.indices[m][i]].push_back(&group.micro[m][i]);
      samples.push_back(&group.micro[m][i]);
    }
  }
  writer.add_images(samples);
  std::map<int64_t, std::string> bad;
  for (size_t i = 0; i < group.skipped.size(); ++i)
    bad[group.skipped_indices[i]] = group.skipped[i];
  for (; good.contains(next) || bad.contains(next); ++next) {
    const Row row = dataset.row(next);
    if (good.contains(next)) {
      const std::vector<const Sample*>& sides = good[next];
      for (size_t side = 0; side < sides.size(); ++side)
        writer.add(row, *sides[side], side > 0 ? sides[0] : nullptr);
    } else {
      writer.add_bad(row, bad[next]);
      skipped.add(row, bad[next]);
    }
  }
}

}  // namespace

int64_t prepare_dataset(const Dataset& dataset, const EncodeOptions& options,
                        const std::string& out, int64_t shard_bytes,
                        const std::function<void()>& poll) {
  if (io::path_exists(out) && !is_prepared(out) &&
      !(io::is_directory(out) && std::filesystem::is_empty(out))) {
    refuse(ErrorKind::kUsage, "the output exists and is not prepared data", out, {},
           "a new or empty directory, or one that lft prepare wrote",
           "give another --out, or move away what is there");
  }
  LoaderOptions loading;
  loading.batch_size = 32;
  loading.shuffle = false;
  loading.skip_bad = options.skip_bad;
  int64_t count = 0;
  io::write_dir_atomic(out, [&](const std::string& folder) {
    PreparedWriter writer(folder, options, shard_bytes);
    SkippedSamples skipped(options);
    Loader loader(dataset, loading);
    int64_t next = 0;
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      if (poll) poll();
      write_group(dataset, loader.next(), next, writer, skipped);
    }
    count = skipped.finish(dataset.size());
    writer.finish();
  });
  return count;
}

}  // namespace lft::data
