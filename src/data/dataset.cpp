#include "src/data/dataset.h"

#include "src/base/hash.h"
#include "src/data/prepared.h"
#include "src/data/row_dataset.h"
#include "src/data/rows/row_reader.h"
#include "src/io/files.h"

namespace lft::data {

int64_t Dataset::images_of(int64_t index) const {
  return static_cast<int64_t>(row(index).images.size());
}

bool Dataset::any_image() const {
  for (int64_t i = 0; i < size(); ++i) {
    if (images_of(i) > 0) return true;
  }
  return false;
}

uint64_t Dataset::said(int64_t index) const {
  const Row said = row(index);
  return said.turns.empty() ? 0 : said_hash(said_text(said));
}

const std::vector<ImageFile>& Dataset::image_files() const {
  static const std::vector<ImageFile> kNone;
  return kNone;
}

std::unique_ptr<Dataset> open_dataset(const std::string& path, const std::string& image_root,
                                      const text::Tokenizer& tokenizer,
                                      const EncodeOptions& options, const IndexUse& use) {
  if (io::is_directory(path)) return open_prepared(path, options);
  return std::make_unique<RowDataset>(path, image_root, tokenizer, options, use);
}

}  // namespace lft::data
