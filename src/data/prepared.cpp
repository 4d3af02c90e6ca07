#include "src/data/prepared.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/data/loader.h"
#include "src/data/rows/row_reader.h"
#include "src/io/files.h"
#include "src/io/safetensors.h"

namespace lft::data {
namespace {

constexpr int64_t kVersion = 1;
constexpr uint64_t kMaxRows = 4ull << 30, kMaxIndex = 64u << 20;

std::string shard_name(size_t number) {
  const std::string digits = std::to_string(number);
  return "shard-" + std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits +
         ".safetensors";
}

constexpr char kSpecialTokens[] = "special_tokens_in_text";

}  // namespace

/// A run whose own differs from what data was prepared for is refused.
io::Json sample_rules(const EncodeOptions& options) {
  io::Json made = {{"template", options.template_name},
                   {"template_hash", text::template_hash(options.template_name)},
                   {"max_tokens", options.max_tokens},
                   {"tokenizer", options.tokenizer_fingerprint},
                   {"eos", options.eos},
                   {"image_token", options.config.image_token},
                   {"vocab_size", options.config.text.vocab}};
  made.update(options.images->identity());
  made["image_fit"] = options.image_fit;
  if (options.special_tokens != SpecialTokensInText::kError)
    made[kSpecialTokens] =
        options.special_tokens == SpecialTokensInText::kText ? "text" : "special";
  return made;
}

namespace {

/// An image beside its pixels, in a shard of a family whose images differ in shape: a row of int64.
constexpr int64_t kShapeNumbers = 9;

std::vector<int64_t> numbers_of(const PixelImage& image) {
  const family::ImageShape& shape = image.shape;
  return {shape.tiles,         shape.height,    shape.width,
          shape.rows,          shape.columns,   shape.source.width,
          shape.source.height, image.positions, image.tower_positions};
}

PixelImage image_of(const int64_t* numbers) {
  return {.shape = {.tiles = numbers[0],
                    .height = numbers[1],
                    .width = numbers[2],
                    .rows = numbers[3],
                    .columns = numbers[4],
                    .source = {.width = numbers[5], .height = numbers[6]}},
          .chw = {},
          .positions = numbers[7],
          .tower_positions = numbers[8]};
}

/// Samples of one shard, gathered until they are written.
struct Shard {
  std::vector<int64_t> input_ids, labels, offsets = {0}, image_offsets = {0}, shapes;
  std::vector<uint8_t> pixels;

  int64_t samples() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t bytes() const { return static_cast<int64_t>(pixels.size() + 16 * input_ids.size()); }
  void add(const Sample& sample) {
    input_ids.insert(input_ids.end(), sample.input_ids.begin(), sample.input_ids.end());
    labels.insert(labels.end(), sample.labels.begin(), sample.labels.end());
    for (const PixelImage& image : sample.images) {
      pixels.insert(pixels.end(), image.chw.begin(), image.chw.end());
      const std::vector<int64_t> numbers = numbers_of(image);
      shapes.insert(shapes.end(), numbers.begin(), numbers.end());
    }
    offsets.push_back(static_cast<int64_t>(input_ids.size()));
    image_offsets.push_back(image_offsets.back() + static_cast<int64_t>(sample.images.size()));
  }
  /// `fixed`: the shape of all images, where they have one.
  void write(const std::string& path, const std::optional<family::ImageShape>& fixed) const;
};

void Shard::write(const std::string& path, const std::optional<family::ImageShape>& fixed) const {
  struct Part {
    const void* data;
    uint64_t bytes;
  };
  const auto part = [](const std::vector<int64_t>& values) {
    return Part{values.data(), values.size() * 8};
  };
  std::map<std::string, Part> parts = {{"image_offsets", part(image_offsets)},
                                       {"input_ids", part(input_ids)},
                                       {"labels", part(labels)},
                                       {"offsets", part(offsets)},
                                       {"pixels", {pixels.data(), pixels.size()}}};
  if (!fixed) parts["image_shapes"] = part(shapes);
  std::vector<io::TensorInfo> tensors;
  for (const auto& [name, data] : parts) {
    io::TensorInfo info;
    info.name = name;
    info.dtype = name == "pixels" ? io::DType::kU8 : io::DType::kI64;
    info.shape = {static_cast<int64_t>(name == "pixels" ? data.bytes : data.bytes / 8)};
    if (name == "pixels" && fixed)
      info.shape = {image_offsets.back(), 3, fixed->height, fixed->width};
    if (name == "image_shapes") info.shape = {image_offsets.back(), kShapeNumbers};
    tensors.push_back(info);
  }
  io::SafetensorsWriter writer(path, tensors, {{"format", "lft-prepared"}});
  for (const io::TensorInfo& tensor : writer.order())
    writer.append(parts.at(tensor.name).data, parts.at(tensor.name).bytes);
  writer.finish();
}

/// Streams samples into shards and rows.jsonl; index.json last.
class PreparedWriter {
 public:
  PreparedWriter(std::string folder, const EncodeOptions& options, int64_t shard_bytes)
      : folder_(std::move(folder)), options_(options), shard_bytes_(shard_bytes) {}

  void add(const Row& row, const Sample& sample) {
    rows_ += row_to_json(row).dump() + "\n";
    supervised_ += sample.supervised();
    tokens_ += static_cast<int64_t>(sample.input_ids.size());
    special_read_ |= sample.special_read;
    shard_.add(sample);
    if (shard_.bytes() >= shard_bytes_) flush();
  }
  void add_bad(const Row& row, const std::string& reason) {
    io::Json json = row_to_json(row);
    json["bad"] = reason;
    rows_ += json.dump() + "\n";
    shard_.add(Sample{});
  }
  void finish() {
    if (shard_.samples() > 0) flush();
    io::write_file_atomic(folder_ + "/rows.jsonl", rows_);
    io::Json made = sample_rules(options_);
    if (options_.special_tokens == SpecialTokensInText::kSpecial && !special_read_)
      made.erase(kSpecialTokens);
    const io::Json index = {{"lft_prepared", kVersion},         {"made_for", made},
                            {"rows_sha256", sha256(rows_)},     {"shards", shards_},
                            {"supervised_tokens", supervised_}, {"tokens", tokens_}};
    io::write_file_atomic(folder_ + "/index.json", index.dump(2) + "\n");
  }

 private:
  void flush() {
    const std::string path = folder_ + "/" + shard_name(shards_.size());
    shard_.write(path, options_.images->fixed_shape());
    shards_.push_back({{"samples", shard_.samples()}, {"sha256", sha256_file(path)}});
    shard_ = Shard{};
  }

  std::string folder_;
  const EncodeOptions& options_;
  int64_t shard_bytes_, supervised_ = 0, tokens_ = 0;
  std::string rows_;
  Shard shard_;
  bool special_read_ = false;
  io::Json shards_ = io::Json::array();
};

void write_samples(const Dataset& dataset, const EncodeOptions& options,
                   const std::function<void()>& poll, PreparedWriter& writer) {
  LoaderOptions loading;
  loading.batch_size = 32;
  loading.shuffle = false;
  loading.skip_bad = options.skip_bad;
  Loader loader(dataset, loading);
  const int64_t steps = loader.steps_per_epoch();
  int64_t next = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (poll) poll();
    const StepSamples group = loader.next();
    std::map<int64_t, const Sample*> good;
    for (size_t m = 0; m < group.micro.size(); ++m) {
      for (size_t i = 0; i < group.micro[m].size(); ++i)
        good[group.indices[m][i]] = &group.micro[m][i];
    }
    std::map<int64_t, std::string> bad;
    for (size_t i = 0; i < group.skipped.size(); ++i)
      bad[group.skipped_indices[i]] = group.skipped[i];
    for (; good.contains(next) || bad.contains(next); ++next) {
      if (good.contains(next)) {
        writer.add(dataset.row(next), *good[next]);
      } else {
        writer.add_bad(dataset.row(next), bad[next]);
      }
    }
  }
}

bool is_prepared(const std::string& path) {
  const std::string index = path + "/index.json";
  return io::path_exists(index) &&
         io::read_file(index, kMaxIndex).find("\"lft_prepared\"") != std::string::npos;
}

[[noreturn]] void damaged(const std::string& where, const std::string& found,
                          const std::string& expected) {
  refuse(ErrorKind::kInput, "the prepared data is damaged", where, found, expected,
         "run lft prepare again");
}

void check_made_for(const io::Json& stored, const EncodeOptions& options, const std::string& path) {
  std::vector<std::string> found, expected;
  io::Json wanted = sample_rules(options);
  // Rows without any are the same whatever a run says of them.
  if (stored.is_object() && stored.contains(kSpecialTokens))
    wanted.emplace(kSpecialTokens, nullptr);
  else
    wanted.erase(kSpecialTokens);
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

/// A shard's header and where each of its samples lies. images: without their pixels, which begin
/// at `pixel_offsets`.
struct OpenShard {
  io::SafetensorsFile file;
  std::vector<int64_t> offsets, image_offsets, pixel_offsets;
  std::vector<PixelImage> images;
};

std::vector<int64_t> read_offsets(const io::SafetensorsFile& file, const std::string& name,
                                  int64_t samples, int64_t end) {
  const io::TensorInfo& info = file.info(name);
  if (info.dtype != io::DType::kI64 || info.shape != std::vector<int64_t>{samples + 1})
    damaged(file.path(), "tensor " + name, "int64, samples + 1");
  std::vector<int64_t> offsets(static_cast<size_t>(samples + 1));
  file.read(info, offsets.data());
  if (offsets.front() != 0 || offsets.back() != end ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    damaged(file.path(), "tensor " + name, "offsets that rise from 0 to " + std::to_string(end));
  }
  return offsets;
}

/// As they stand in the file, or all of the one shape.
std::vector<PixelImage> read_shapes(const io::SafetensorsFile& file, int64_t images,
                                    const family::ImageProcessor& processor) {
  if (const auto fixed = processor.fixed_shape()) {
    const family::ImagePlan plan = processor.plan({fixed->width, fixed->height});
    const PixelImage one{.shape = *fixed,
                         .chw = {},
                         .positions = plan.positions(),
                         .tower_positions = plan.tower_positions};
    return {static_cast<size_t>(images), one};
  }
  const io::TensorInfo& info = file.info("image_shapes");
  if (info.dtype != io::DType::kI64 || info.shape != std::vector<int64_t>{images, kShapeNumbers})
    damaged(file.path(), "tensor image_shapes",
            "int64 [images, " + std::to_string(kShapeNumbers) + "]");
  std::vector<int64_t> numbers(static_cast<size_t>(images * kShapeNumbers));
  file.read(info, numbers.data());
  const auto within = [](int64_t number) { return number >= 0 && number <= 1 << 20; };
  if (!std::ranges::all_of(numbers, within))
    damaged(file.path(), "tensor image_shapes", "sizes and counts from 0 to 1048576");
  std::vector<PixelImage> found;
  for (int64_t i = 0; i < images; ++i)
    found.push_back(image_of(numbers.data() + i * kShapeNumbers));
  return found;
}

OpenShard open_shard(const std::string& path, int64_t samples,
                     const family::ImageProcessor& processor) {
  io::SafetensorsFile file(path);
  const io::TensorInfo &ids = file.info("input_ids"), &labels = file.info("labels"),
                       &pixels = file.info("pixels");
  const auto fixed = processor.fixed_shape();
  const bool fits = ids.dtype == io::DType::kI64 && labels.dtype == io::DType::kI64 &&
                    ids.shape.size() == 1 && ids.shape == labels.shape;
  const bool square =
      pixels.dtype == io::DType::kU8 &&
      (fixed ? pixels.shape.size() == 4 && pixels.shape[1] == 3 &&
                   pixels.shape[2] == fixed->height && pixels.shape[3] == fixed->width
             : pixels.shape.size() == 1);
  if (!fits || !square) {
    const std::string form = fixed ? "[n, 3, size, size]" : "[n]";
    damaged(path, "tensors of other types or shapes",
            "input_ids and labels int64 [t], pixels uint8 " + form);
  }
  std::vector<int64_t> offsets = read_offsets(file, "offsets", samples, ids.shape[0]);
  const std::vector<int64_t>& counted = fixed ? pixels.shape : file.info("image_shapes").shape;
  const int64_t images = counted.empty() ? 0 : counted[0];
  std::vector<int64_t> image_offsets = read_offsets(file, "image_offsets", samples, images);
  std::vector<PixelImage> shapes = read_shapes(file, images, processor);
  std::vector<int64_t> pixel_offsets = {0};
  for (const PixelImage& image : shapes)
    pixel_offsets.push_back(pixel_offsets.back() + image.shape.values());
  if (static_cast<uint64_t>(pixel_offsets.back()) != pixels.bytes)
    damaged(path, std::to_string(pixels.bytes) + " bytes of pixels",
            std::to_string(pixel_offsets.back()) + ", as the images' shapes say");
  return {.file = std::move(file),
          .offsets = std::move(offsets),
          .image_offsets = std::move(image_offsets),
          .pixel_offsets = std::move(pixel_offsets),
          .images = std::move(shapes)};
}

class PreparedDataset : public Dataset {
 public:
  PreparedDataset(const std::string& path, const EncodeOptions& options)
      : path_(path), options_(options) {
    const std::string text = io::read_file(path + "/index.json", kMaxIndex);
    hash_ = sha256(text);
    const std::string where = path + "/index.json";
    const io::Json index = io::parse_json(text, where);
    if (!index.is_object() || index.value("lft_prepared", io::Json()) != io::Json(kVersion)) {
      damaged(where,
              "lft_prepared " +
                  (index.is_object() ? index.value("lft_prepared", io::Json()).dump() : "absent"),
              std::to_string(kVersion));
    }
    check_made_for(index.value("made_for", io::Json()), options, path);
    read_rows(io::json_string(index, "rows_sha256", where));
    int64_t all_samples = 0;
    for (const io::Json& shard : index.value("shards", io::Json::array())) {
      const int64_t samples = io::json_int(shard, "samples", 1, 1ll << 40, where);
      starts_.push_back(all_samples);
      all_samples += samples;
      shards_.push_back(
          open_shard(path + "/" + shard_name(shards_.size()), samples, *options.images));
    }
    if (all_samples != size())
      damaged(where, std::to_string(all_samples) + " samples in the shards",
              std::to_string(size()) + ", as rows.jsonl has");
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::string id(int64_t index) const override { return at(index).id; }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t index) const override { return at(index); }
  std::string hash() const override { return hash_; }

  Sample get(int64_t index) const override {
    const auto [open, i] = place(index);
    Sample sample;
    sample.id = at(index).id;
    sample.input_ids = read_ids(open, "input_ids", i);
    sample.labels = read_ids(open, "labels", i);
    for (auto image = static_cast<size_t>(open.image_offsets[i]);
         image < static_cast<size_t>(open.image_offsets[i + 1]); ++image) {
      PixelImage pixels = open.images[image];
      pixels.chw.resize(static_cast<size_t>(pixels.shape.values()));
      open.file.read_range(open.file.info("pixels"),
                           static_cast<uint64_t>(open.pixel_offsets[image]), pixels.chw.size(),
                           pixels.chw.data());
      sample.images.push_back(std::move(pixels));
    }
    check(sample, index);
    return sample;
  }
  SampleLength length(int64_t index) const override {
    const auto [open, i] = place(index);
    const std::vector<int64_t> labels = read_ids(open, "labels", i);
    const auto supervised =
        std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != -100; });
    SampleLength length{
        .tokens = static_cast<int32_t>(labels.size()),
        .supervised = static_cast<int32_t>(supervised),
        .images = static_cast<int32_t>(open.image_offsets[i + 1] - open.image_offsets[i])};
    for (int64_t image = open.image_offsets[i]; image < open.image_offsets[i + 1]; ++image) {
      const PixelImage& one = open.images[static_cast<size_t>(image)];
      length.values += one.shape.values();
      length.tower += one.tower_positions;
      length.placed += one.positions;
    }
    return length;
  }

 private:
  const Row& at(int64_t index) const { return rows_.at(static_cast<size_t>(index)); }

  /// Where a good sample lies: its shard and its number there.
  std::pair<const OpenShard&, size_t> place(int64_t index) const {
    const auto bad = bad_.find(index);
    if (bad != bad_.end()) fail_bad(index, bad->second);
    const auto shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) -
                                           starts_.begin()) -
                       1;
    return {shards_[shard], static_cast<size_t>(index - starts_[shard])};
  }

  void read_rows(const std::string& expected) {
    const std::string where = path_ + "/rows.jsonl", text = io::read_file(where, kMaxRows);
    if (sha256(text) != expected) damaged(where, "another sha256 than index.json holds", expected);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = where + ":" + std::to_string(rows_.size() + 1);
      const io::Json json = io::parse_json(std::string_view(text).substr(begin, end - begin), line);
      if (json.is_object() && json.contains("bad"))
        bad_.emplace(size(), io::json_string(json, "bad", line));
      rows_.push_back(row_from_json(json, line));
      begin = end + 1;
    }
    if (!bad_.empty() && !options_.skip_bad) fail_bad(bad_.begin()->first, bad_.begin()->second);
  }

  [[noreturn]] void fail_bad(int64_t index, const std::string& reason) const {
    refuse(ErrorKind::kInput, "a sample that was bad when the data was prepared",
           at(index).where + " (id " + quote_text(at(index).id, 80) + ")", reason, {},
           "mend it and run lft prepare again, or set data.on_bad_sample: skip");
  }

  static std::vector<int64_t> read_ids(const OpenShard& open, const std::string& name, size_t i) {
    const auto begin = static_cast<uint64_t>(open.offsets[i]),
               end = static_cast<uint64_t>(open.offsets[i + 1]);
    std::vector<int64_t> ids(end - begin);
    open.file.read_range(open.file.info(name), begin * 8, (end - begin) * 8, ids.data());
    return ids;
  }

  /// Ids below the vocabulary, labels that repeat their ids, image positions for the images: what
  /// the model takes on trust.
  void check(const Sample& sample, int64_t index) const {
    const std::string where =
        path_ + "[" + std::to_string(index) + "] (id " + quote_text(sample.id, 80) + ")";
    int64_t image_positions = 0;
    for (size_t i = 0; i < sample.input_ids.size(); ++i) {
      const int64_t id = sample.input_ids[i], label = sample.labels[i];
      if (id < 0 || id >= options_.config.text.vocab)
        damaged(where, "token id " + std::to_string(id),
                "below " + std::to_string(options_.config.text.vocab));
      if (label != -100 && label != id)
        damaged(where, "label " + std::to_string(label) + " at token " + std::to_string(id),
                "the token's id, or -100");
      image_positions += id == options_.config.image_token;
    }
    int64_t expected = 0;
    for (const PixelImage& image : sample.images) expected += image.positions;
    if (image_positions != expected) {
      damaged(where,
              std::to_string(image_positions) + " image positions for " +
                  std::to_string(sample.images.size()) + " images",
              std::to_string(expected));
    }
  }

  std::string path_, hash_;
  EncodeOptions options_;
  std::vector<Row> rows_;
  std::map<int64_t, std::string> bad_;  // by index: why the sample is left out
  std::vector<OpenShard> shards_;
  std::vector<int64_t> starts_;  // index of each shard's first sample
};

}  // namespace

void prepare_dataset(const Dataset& dataset, const EncodeOptions& options, const std::string& out,
                     int64_t shard_bytes, const std::function<void()>& poll) {
  if (io::path_exists(out) && !is_prepared(out) &&
      !(io::is_directory(out) && std::filesystem::is_empty(out))) {
    refuse(ErrorKind::kUsage, "the output exists and is not prepared data", out, {},
           "a new or empty directory, or one that lft prepare wrote",
           "give another --out, or move away what is there");
  }
  io::write_dir_atomic(out, [&](const std::string& folder) {
    PreparedWriter writer(folder, options, shard_bytes);
    write_samples(dataset, options, poll, writer);
    writer.finish();
  });
}

std::unique_ptr<Dataset> open_prepared(const std::string& path, const EncodeOptions& options) {
  if (!is_prepared(path)) {
    refuse(ErrorKind::kInput, "a directory that lft prepare did not write", path,
           "no index.json of lft prepare", "a JSON or JSONL file, or a prepared directory",
           "name the file in it, or the directory that lft prepare was given as --out");
  }
  return std::make_unique<PreparedDataset>(path, options);
}

}  // namespace lft::data
