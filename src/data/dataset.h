// A data set: rows of data files (LLaVA, ShareGPT, OpenAI messages) or a prepared directory, read
// sample by sample by index.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/data/rows/row.h"
#include "src/data/store/sample.h"
#include "src/io/pages.h"
#include "src/text/tokenizer.h"

namespace lft::data {

struct EncodeOptions;

/// The metadata of an image file; bytes is -1 if it does not exist.
struct ImageFile {
  int64_t bytes = -1, seconds = 0, nanoseconds = 0;  // size and modification time
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Sample get(int64_t index) const = 0;  // thread-safe
  /// The length of get(index); thread-safe. Throws what get() throws, except for pixels that cannot
  /// be decoded: for a file of rows only the headers of its images are read.
  virtual SampleLength length(int64_t index) const;
  /// Measures all rows if that takes more than a look-up: length() is fast afterwards.
  virtual void measure(int64_t /*workers*/) const {}
  virtual std::string id(int64_t index) const = 0;
  /// Image file paths of a sample, for incidents and reports (empty for prepared data).
  virtual std::vector<std::string> image_paths(int64_t index) const = 0;
  virtual Row row(int64_t index) const = 0;  // prepared data contains the turns too
  virtual std::string hash() const = 0;      // sha256 of what determines samples (rows or shards)

  // The following do not parse the rows.
  virtual int64_t images_of(int64_t index) const;  // number of images of a row
  virtual bool any_image() const;                  // whether any row has an image
  /// A hash of the turns, the system text and the images of a row; 0 if it cannot be read.
  virtual uint64_t row_hash(int64_t index) const;
  /// The distinct images by number; none for prepared data. image_files() has their metadata at the
  /// first call; images embedded in rows have no file.
  virtual std::vector<int32_t> image_numbers(int64_t /*index*/) const { return {}; }
  virtual int64_t image_names() const { return 0; }
  virtual std::string image_name(int64_t /*number*/) const { return {}; }
  virtual std::string image_root(int64_t /*number*/) const { return {}; }  // base of relative names
  virtual const std::vector<ImageFile>& image_files() const;
  /// Keys of the images of a row, of a pair those of both sides. Two images have one key if they
  /// are the same file, after resolving links, or are embedded in their rows with the same bytes;
  /// of prepared data, if they have the same pixels.
  virtual std::vector<uint64_t> image_keys(int64_t /*index*/) const { return {}; }
  /// The encoded bytes of an image of a row; empty for prepared data and if it cannot be read.
  virtual io::FileBytes image_bytes(int64_t /*index*/, size_t /*image*/) const { return {}; }

  /// The reference model's log-probabilities, the same number for each row: summed over its answer,
  /// of a pair then over the rejected one; for the evaluation of KTO then over the next row's
  /// answer after this row's prompt. NaN for a bad row. Empty: not computed. Loader adds them to
  /// samples.
  const std::vector<double>& references() const { return references_; }
  void set_references(std::vector<double> sums) { references_ = std::move(sums); }
  /// The sample of a row, or both sides of a pair, with their references. Throws like get().
  std::vector<Sample> sides(int64_t index) const;

  /// The index of a row's source if several data sets were joined.
  virtual int32_t source(int64_t /*index*/) const { return 0; }
  /// Saves the index to files of this stem (IndexUse) unless it was loaded from one. kResource if
  /// it cannot be written.
  virtual void keep_index(const std::string& /*stem*/) const {}

 private:
  std::vector<double> references_;
};
/// The suffix of a data file's path that gives the default stem of its index.
inline constexpr char kIndexSuffix[] = ".lft";
/// The index of a data file, so that a start need not read all rows: <stem>.rows, and
/// <stem>.lengths for train.worst_first and data.group_by_length.
struct IndexUse {
  std::vector<std::string> kept = {};  // stems that are tried before the default one, in this order
  bool lengths = false;                // lengths are measured while the rows are read
};

/// A directory written by `lft prepare`, a file of rows, or a folder of such files
/// (src/data/sources/data_files.h). `tokenizer` must outlive the dataset.
std::unique_ptr<Dataset> open_dataset(const std::string& path, const std::string& image_root,
                                      const text::Tokenizer& tokenizer,
                                      const EncodeOptions& options, const IndexUse& use = {});

}  // namespace lft::data
