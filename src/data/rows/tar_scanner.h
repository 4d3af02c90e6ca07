// Splits WebDataset tar files into samples; see row_scan.h. Images remain in the file.
#pragma once
#include <optional>
#include <string>

#include "src/data/rows/row_scan.h"
#include "src/data/rows/tar.h"

namespace lft::data {

/// A sample of a tar file: consecutive members with one key.
struct TarSample {
  std::string key;               // folder and base name up to its first dot
  std::optional<TarMember> row;  // the member that ends in .json
  std::string other_row;         // a member that ends in .json after another dot
  std::vector<RowImage> images;  // images in the order of the file
  int64_t begin = 0, end = 0;    // from its first header to the next sample's
};

class TarScanner : public RowScan {
 public:
  /// kInput for a file without a sample.
  explicit TarScanner(const io::FileHandle& file);
  RowForm form() const override { return RowForm::kTar; }
  bool next(RowBatch& batch) override;

 private:
  bool take(TarSample& sample);

  const io::FileHandle& file_;
  TarReader reader_;
  std::optional<TarMember> held_;  // first member of the next sample
  int64_t rows_ = 0, batches_ = 0;
  bool has_sample_ = false;
};

/// The sample between two offsets of the file. kInput if there is none.
RowText read_tar_row(const io::FileHandle& file, int64_t begin, int64_t end);

}  // namespace lft::data
