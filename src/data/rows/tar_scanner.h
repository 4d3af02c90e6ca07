// WebDataset tar files, split into samples: see row_scan.h. Images stay where they are.
#pragma once
#include <optional>
#include <string>

#include "src/data/rows/row_scan.h"
#include "src/data/rows/tar.h"

namespace lft::data {

/// A sample of a tar file: members in a row with one key.
struct TarSample {
  std::string key;               // folder and base name up to its first point
  std::optional<TarMember> row;  // that ends in .json
  std::string other_row;         // a member that ends in .json after another point
  std::vector<RowImage> images;  // in the order of the file
  int64_t begin = 0, end = 0;    // from the first of its headers to the next sample's
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
  std::optional<TarMember> held_;  // the first of the next sample
  int64_t rows_ = 0, batches_ = 0;
  bool has_sample_ = false;
};

/// The sample between two places of the file. kInput where there is none.
RowText read_tar_row(const io::FileHandle& file, int64_t begin, int64_t end);

}  // namespace lft::data
