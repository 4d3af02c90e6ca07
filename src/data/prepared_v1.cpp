#include "src/data/prepared_v1.h"

#include <algorithm>
#include <map>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/data/prepared.h"
#include "src/data/rows/row_reader.h"
#include "src/data/store/stored_sample.h"
#include "src/io/files.h"
#include "src/io/safetensors.h"

namespace lft::data {
namespace {

constexpr int64_t kVersion1 = 1;
constexpr uint64_t kMaxRows = 4ull << 30;

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
    refuse_damaged(file.path(), "tensor " + name, "int64, samples + 1");
  std::vector<int64_t> offsets(static_cast<size_t>(samples + 1));
  file.read(info, offsets.data());
  if (offsets.front() != 0 || offsets.back() != end ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    refuse_damaged(file.path(), "tensor " + name,
                   "offsets that rise from 0 to " + std::to_string(end));
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
    refuse_damaged(file.path(), "tensor image_shapes",
                   "int64 [images, " + std::to_string(kShapeNumbers) + "]");
  std::vector<int64_t> numbers(static_cast<size_t>(images * kShapeNumbers));
  file.read(info, numbers.data());
  const auto within = [](int64_t number) { return number >= 0 && number <= 1 << 20; };
  if (!std::ranges::all_of(numbers, within))
    refuse_damaged(file.path(), "tensor image_shapes", "sizes and counts from 0 to 1048576");
  std::vector<PixelImage> found;
  for (int64_t i = 0; i < images; ++i)
    found.push_back(*image_of_numbers({numbers.data() + i * kShapeNumbers, size_t{kShapeNumbers}}));
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
    refuse_damaged(path, "tensors of other types or shapes",
                   "input_ids and labels int64 [t], pixels uint8 " + form);
  }
  std::vector<int64_t> offsets = read_offsets(file, "offsets", samples, ids.shape[0]);
  const std::vector<int64_t>& counted = fixed ? pixels.shape : file.info("image_shapes").shape;
  const int64_t images = counted.empty() ? 0 : counted[0];
  std::vector<int64_t> image_offsets = read_offsets(file, "image_offsets", samples, images);
  std::vector<PixelImage> shapes = read_shapes(file, images, processor);
  std::vector<int64_t> pixel_offsets = {0};
  for (const PixelImage& image : shapes) {
    const int64_t values = image.shape.values();
    if (static_cast<uint64_t>(values) > pixels.bytes)  // no sum overflows below
      refuse_damaged(path, std::to_string(values) + " pixels of an image",
                     "at most " + std::to_string(pixels.bytes));
    pixel_offsets.push_back(pixel_offsets.back() + values);
  }
  if (static_cast<uint64_t>(pixel_offsets.back()) != pixels.bytes)
    refuse_damaged(path, std::to_string(pixels.bytes) + " bytes of pixels",
                   std::to_string(pixel_offsets.back()) + ", as the images' shapes say");
  return {.file = std::move(file),
          .offsets = std::move(offsets),
          .image_offsets = std::move(image_offsets),
          .pixel_offsets = std::move(pixel_offsets),
          .images = std::move(shapes)};
}

/// Labels repeat their ids.
void check_labels(const Sample& sample, const std::string& where) {
  for (size_t i = 0; i < sample.input_ids.size(); ++i) {
    const int64_t id = sample.input_ids[i], label = sample.labels[i];
    if (label != -100 && label != id)
      refuse_damaged(where, "label " + std::to_string(label) + " at token " + std::to_string(id),
                     "the token's id, or -100");
  }
}

class PreparedV1 : public Dataset {
 public:
  PreparedV1(const std::string& path, const EncodeOptions& options)
      : path_(path), options_(options) {
    const std::string text = io::read_file(path + "/index.json", kMostIndexBytes);
    hash_ = sha256(text);
    const std::string where = path + "/index.json";
    const io::Json index = io::parse_json(text, where);
    if (!index.is_object() || index.value("lft_prepared", io::Json()) != io::Json(kVersion1)) {
      refuse_damaged(
          where,
          "lft_prepared " +
              (index.is_object() ? index.value("lft_prepared", io::Json()).dump() : "absent"),
          std::to_string(kVersion1));
    }
    check_made_for(index.value("made_for", io::Json()), options, path);
    read_rows(io::json_string(index, "rows_sha256", where));
    int64_t all_samples = 0;
    for (const io::Json& shard : io::json_array(index, "shards", where)) {
      const int64_t samples = io::json_int(shard, "samples", 1, 1ll << 40, where);
      starts_.push_back(all_samples);
      all_samples += samples;
      shards_.push_back(
          open_shard(path + "/" + shard_name("shard", shards_.size()), samples, *options.images));
    }
    if (all_samples != size())
      refuse_damaged(where, std::to_string(all_samples) + " samples in the shards",
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
    const std::string where =
        path_ + "[" + std::to_string(index) + "] (id " + quote_text(sample.id, 80) + ")";
    check_labels(sample, where);
    check_prepared(sample, options_, where);
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
    if (sha256(text) != expected)
      refuse_damaged(where, "another sha256 than index.json holds", expected);
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
    refuse_bad_row(at(index), reason);
  }

  static std::vector<int64_t> read_ids(const OpenShard& open, const std::string& name, size_t i) {
    const auto begin = static_cast<uint64_t>(open.offsets[i]),
               end = static_cast<uint64_t>(open.offsets[i + 1]);
    std::vector<int64_t> ids(end - begin);
    open.file.read_range(open.file.info(name), begin * 8, (end - begin) * 8, ids.data());
    return ids;
  }

  std::string path_, hash_;
  EncodeOptions options_;
  std::vector<Row> rows_;
  std::map<int64_t, std::string> bad_;  // by index: why the sample is left out
  std::vector<OpenShard> shards_;
  std::vector<int64_t> starts_;  // index of each shard's first sample
};

}  // namespace

std::unique_ptr<Dataset> open_prepared_v1(const std::string& path, const EncodeOptions& options) {
  return std::make_unique<PreparedV1>(path, options);
}

}  // namespace lft::data
