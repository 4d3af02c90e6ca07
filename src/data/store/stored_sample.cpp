#include "src/data/store/stored_sample.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace lft::data {
namespace {

constexpr size_t kCounts = 5;                // ids, labels, image_runs, images, bytes of the id
constexpr int64_t kMostPositions = 1 << 24;  // same as data.max_tokens

template <class T>
void append_bytes(std::vector<uint8_t>& bytes, const T* values, size_t count) {
  const auto* const from = reinterpret_cast<const uint8_t*>(values);
  bytes.insert(bytes.end(), from, from + count * sizeof(T));
}

/// Removes the first `count` values; false if there are fewer.
template <class Values>
bool take_front(std::span<const uint8_t>& bytes, int64_t count, Values& values) {
  using Value = typename Values::value_type;
  if (count < 0 || static_cast<uint64_t>(count) > bytes.size() / sizeof(Value)) return false;
  values.resize(static_cast<size_t>(count));
  if (count > 0) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  bytes = bytes.subspan(values.size() * sizeof(Value));
  return true;
}

}  // namespace

StoredSample store_sample(const Sample& sample, std::string row, int64_t image_token,
                          std::vector<int32_t> images) {
  StoredSample stored{.id = sample.id,
                      .row = std::move(row),
                      .ids = {},
                      .labels = {},
                      .image_runs = {},
                      .images = std::move(images)};
  bool before_is_image = false, before_is_learnt = false;
  for (size_t i = 0; i < sample.input_ids.size(); ++i) {
    const bool is_image = sample.input_ids[i] == image_token,
               is_learnt = sample.labels[i] != kIgnoreIndex;
    if (is_image && before_is_image) {
      ++stored.image_runs.back();
      continue;
    }
    if (is_image) stored.image_runs.push_back(1);
    if (is_learnt && !before_is_learnt)
      stored.labels.insert(stored.labels.end(), {static_cast<int32_t>(stored.ids.size()), 0});
    if (is_learnt) ++stored.labels.back();
    stored.ids.push_back(static_cast<int32_t>(sample.input_ids[i]));
    before_is_image = is_image;
    before_is_learnt = is_learnt;
  }
  return stored;
}

std::vector<uint8_t> pack_sample(const StoredSample& sample) {
  const std::array<int32_t, kCounts> counts = {
      static_cast<int32_t>(sample.ids.size()), static_cast<int32_t>(sample.labels.size()),
      static_cast<int32_t>(sample.image_runs.size()), static_cast<int32_t>(sample.images.size()),
      static_cast<int32_t>(sample.id.size())};
  std::vector<uint8_t> bytes;
  append_bytes(bytes, counts.data(), kCounts);
  for (const auto* const values : {&sample.ids, &sample.labels, &sample.image_runs, &sample.images})
    append_bytes(bytes, values->data(), values->size());
  append_bytes(bytes, sample.id.data(), sample.id.size());
  append_bytes(bytes, sample.row.data(), sample.row.size());
  return bytes;
}

std::optional<StoredSample> unpack_sample(std::span<const uint8_t> bytes) {
  StoredSample sample;
  std::vector<int32_t> counts;
  const bool whole =
      take_front(bytes, kCounts, counts) && take_front(bytes, counts[0], sample.ids) &&
      take_front(bytes, counts[1], sample.labels) &&
      take_front(bytes, counts[2], sample.image_runs) &&
      take_front(bytes, counts[3], sample.images) && take_front(bytes, counts[4], sample.id);
  if (!whole) return std::nullopt;
  sample.row.assign(bytes.begin(), bytes.end());
  return sample;
}

std::optional<Sample> expand_sample(const StoredSample& stored, int64_t image_token,
                                    int64_t tokens) {
  if (tokens < 0 || tokens > kMostPositions || stored.labels.size() % 2 != 0) return std::nullopt;
  std::vector<bool> learnt(stored.ids.size(), false);
  for (size_t i = 0; i < stored.labels.size(); i += 2) {
    const int64_t begin = stored.labels[i], end = begin + stored.labels[i + 1];
    if (begin < 0 || end < begin || end > static_cast<int64_t>(learnt.size())) return std::nullopt;
    std::fill(learnt.begin() + begin, learnt.begin() + end, true);
  }
  Sample sample;
  sample.id = stored.id;
  auto run = stored.image_runs.begin();
  for (size_t i = 0; i < stored.ids.size(); ++i) {
    const int64_t id = stored.ids[i];
    const bool is_image = id == image_token;
    if (is_image && (run == stored.image_runs.end() || learnt[i])) return std::nullopt;
    const int64_t copies = is_image ? *run++ : 1;
    const int64_t left = tokens - static_cast<int64_t>(sample.input_ids.size());
    if (copies < 1 || copies > left) return std::nullopt;
    sample.input_ids.insert(sample.input_ids.end(), static_cast<size_t>(copies), id);
    sample.labels.insert(sample.labels.end(), static_cast<size_t>(copies),
                         learnt[i] ? id : kIgnoreIndex);
  }
  if (run != stored.image_runs.end() || static_cast<int64_t>(sample.input_ids.size()) != tokens)
    return std::nullopt;
  return sample;
}

std::vector<int64_t> shape_numbers(const PixelImage& image) {
  const family::ImageShape& shape = image.shape;
  return {shape.tiles,         shape.height,    shape.width,
          shape.rows,          shape.columns,   shape.source.width,
          shape.source.height, image.positions, image.tower_positions};
}

std::optional<PixelImage> image_of_numbers(std::span<const int64_t> numbers) {
  const auto within = [](int64_t number) { return number >= 0 && number <= 1 << 20; };
  if (numbers.size() != kShapeNumbers || !std::ranges::all_of(numbers, within)) return std::nullopt;
  return PixelImage{.shape = {.tiles = numbers[0],
                              .height = numbers[1],
                              .width = numbers[2],
                              .rows = numbers[3],
                              .columns = numbers[4],
                              .source = {.width = numbers[5], .height = numbers[6]}},
                    .chw = {},
                    .positions = numbers[7],
                    .tower_positions = numbers[8]};
}

}  // namespace lft::data
