#include "src/data/dataset.h"

#include "src/base/hash.h"
#include "src/data/prepared.h"
#include "src/data/rows/row_reader.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

/// Rows in memory, encoded when asked for.
class JsonDataset : public Dataset {
 public:
  JsonDataset(const std::string& path, std::string image_root, const text::Tokenizer& tokenizer,
              EncodeOptions options)
      : file_(read_row_file(path, options.skip_bad, options.count_unknown)),
        image_root_(std::move(image_root)),
        tokenizer_(tokenizer),
        options_(std::move(options)) {}

  int64_t size() const override { return static_cast<int64_t>(file_.rows.size()); }
  Sample get(int64_t index) const override {
    const auto bad = file_.bad.find(index);
    if (bad != file_.bad.end()) throw bad->second;
    return encode_row(at(index), image_root_, tokenizer_, options_);
  }
  SampleLength length(int64_t index) const override {
    const auto bad = file_.bad.find(index);
    if (bad != file_.bad.end()) throw bad->second;
    return row_length(at(index), image_root_, tokenizer_, options_);
  }
  std::string id(int64_t index) const override { return at(index).id; }
  std::vector<std::string> image_paths(int64_t index) const override {
    std::vector<std::string> paths;
    for (const std::string& name : at(index).images)
      paths.push_back(image_root_.empty() ? name : image_root_ + "/" + name);
    return paths;
  }
  Row row(int64_t index) const override { return at(index); }
  std::string hash() const override {
    Sha256 hash;
    for (const Row& row : file_.rows) {
      io::Json json = row_to_json(row);
      json.erase("where");  // the same rows in another place are the same data
      hash.update(json.dump() + "\n");
    }
    return hash.hex();
  }

 private:
  const Row& at(int64_t index) const { return file_.rows.at(static_cast<size_t>(index)); }

  RowFile file_;
  std::string image_root_;
  const text::Tokenizer& tokenizer_;
  EncodeOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> open_dataset(const std::string& path, const std::string& image_root,
                                      const text::Tokenizer& tokenizer,
                                      const EncodeOptions& options) {
  if (io::is_directory(path)) return open_prepared(path, options);
  return std::make_unique<JsonDataset>(path, image_root, tokenizer, options);
}

}  // namespace lft::data
