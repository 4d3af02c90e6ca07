// The rows of a data file as a data set: located by their index, parsed and encoded on demand.
#pragma once
#include <mutex>
#include <optional>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/data/rows/row_index.h"
#include "src/data/sources/data_files.h"
#include "src/data/store/length_table.h"

namespace lft::data {

/// The rules for the rows of a file. A row of an unpacked one names its images by columns.
RowRules row_rules(const EncodeOptions& options, const DataFile& file);
/// The folder of its images: the recipe's, or the file's own.
std::string image_root_of(const std::string& image_root, const DataFile& file);

class RowDataset : public Dataset {
 public:
  RowDataset(const DataFile& file, const std::string& image_root, const text::Tokenizer& tokenizer,
             EncodeOptions options, const IndexUse& use);

  int64_t size() const override { return index_->size(); }
  Sample get(int64_t index) const override;
  SampleLength length(int64_t index) const override;
  void measure(int64_t workers) const override;
  std::string id(int64_t index) const override { return row(index).id; }
  std::vector<std::string> image_paths(int64_t index) const override;
  Row row(int64_t index) const override { return index_->row(check(index)); }
  std::string hash() const override { return index_->hash(); }
  int64_t images_of(int64_t index) const override;
  bool any_image() const override;
  uint64_t row_hash(int64_t index) const override { return index_->row_hash(check(index)); }
  std::vector<int32_t> image_numbers(int64_t index) const override;
  std::vector<uint64_t> image_keys(int64_t index) const override;
  int64_t image_names() const override { return index_->image_names(); }
  std::string image_name(int64_t number) const override { return index_->image_name(number); }
  std::string image_root(int64_t /*number*/) const override { return image_root_; }
  const std::vector<ImageFile>& image_files() const override;
  io::FileBytes image_bytes(int64_t index, size_t image) const override;
  void keep_index(const std::string& stem) const override;

 private:
  int64_t check(int64_t index) const;
  std::string path_of(const std::string& name) const;
  SampleLength measured(const ReadRow& read) const;
  std::string lengths_key() const;
  bool find_lengths() const;

  std::string image_root_;
  const text::Tokenizer& tokenizer_;
  EncodeOptions options_;
  std::vector<std::string> kept_;  // file stems
  std::unique_ptr<RowIndex> index_;
  mutable std::mutex measuring_;
  mutable std::optional<LengthTable> lengths_;
  mutable bool lengths_kept_ = false;
  mutable std::once_flag looked_;
  mutable std::vector<ImageFile> image_files_;
  mutable std::once_flag keyed_;
  mutable std::vector<uint64_t> image_keys_;
};

}  // namespace lft::data
