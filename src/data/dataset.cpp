#include "src/data/dataset.h"

#include <utility>

#include "src/base/hash.h"
#include "src/data/dataset_joined.h"
#include "src/data/lengths.h"
#include "src/data/prepared.h"
#include "src/data/row_dataset.h"
#include "src/data/rows/row_reader.h"
#include "src/data/sources/data_files.h"
#include "src/io/files.h"

namespace lft::data {

SampleLength Dataset::length(int64_t index) const { return sample_length(get(index)); }

std::vector<Sample> Dataset::sides(int64_t index) const {
  std::vector<Sample> sides;
  sides.push_back(get(index));
  for (Sample& rejected : std::exchange(sides[0].rejected, {})) {
    rejected.source = sides[0].source;
    sides.push_back(std::move(rejected));
  }
  if (references_.empty()) return sides;
  const size_t each = references_.size() / static_cast<size_t>(size());
  const double* const own = references_.data() + each * static_cast<size_t>(index);
  for (size_t i = 0; i < sides.size(); ++i) sides[i].reference = own[i];
  if (each > sides.size()) sides[0].mismatched_reference = own[each - 1];
  return sides;
}

int64_t Dataset::images_of(int64_t index) const {
  return static_cast<int64_t>(row(index).images.size());
}

bool Dataset::any_image() const {
  for (int64_t i = 0; i < size(); ++i) {
    if (images_of(i) > 0) return true;
  }
  return false;
}

uint64_t Dataset::row_hash(int64_t index) const {
  const Row content = row(index);
  return content.messages().empty() ? 0 : row_content_hash(row_content(content));
}

const std::vector<ImageFile>& Dataset::image_files() const {
  static const std::vector<ImageFile> kNone;
  return kNone;
}

std::unique_ptr<Dataset> open_dataset(const std::string& path, const std::string& image_root,
                                      const text::Tokenizer& tokenizer,
                                      const EncodeOptions& options, const IndexUse& use) {
  const std::vector<DataFile> files = data_files(path);
  if (files.empty()) return open_prepared(path, options);
  if (files.size() == 1)
    return std::make_unique<RowDataset>(files[0], image_root, tokenizer, options, use);
  std::vector<std::unique_ptr<Dataset>> parts;
  for (size_t i = 0; i < files.size(); ++i) {
    IndexUse of_part = use;
    for (std::string& stem : of_part.kept) stem = part_stem(stem, i);
    parts.push_back(
        std::make_unique<RowDataset>(files[i], image_root, tokenizer, options, of_part));
  }
  return join_datasets(std::move(parts), /*as_sources=*/false);
}

}  // namespace lft::data
