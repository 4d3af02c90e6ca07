// Problems of one row or one image file. The functions are thread-safe and count nothing.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/data/rows/row_reader.h"
#include "src/debug/data/validate.h"
#include "src/debug/data/validate_answers.h"
#include "src/text/tokenizer.h"

namespace lft::debug {

/// An opened data file; rows that could not be read are in rows.bad.
struct RowSource {
  std::string key, path, image_root;
  data::RowFile rows;
  std::unique_ptr<data::Dataset> prepared;  // of a directory that lft prepare wrote, otherwise null
};

/// Figures and problems of one row.
struct RowScan {
  std::vector<DataProblem> problems;
  bool bad = false;       // training skips it with data.on_bad_sample: skip
  bool readable = false;  // its tokens are counted below
  int64_t length = 0, kept = 0, labels = 0, kept_labels = 0;
  int64_t replies = 0, replies_with_eos = 0, replies_cut = 0;
  int64_t masked = 0;           // answers excluded from the loss, which are not in replies
  std::string text;             // text_hash(); empty for a malformed row
  std::vector<ReplyHash> said;  // for every reply
  size_t pixels = 0;            // hash of the images of a prepared row
};

/// A hash of a row without its images, which are compared by their bytes.
std::string text_hash(data::Row row);

/// Settings for reading rows.
struct RowReading {
  const text::Tokenizer& tokenizer;
  const data::EncodeOptions& options;
  std::vector<std::string> marks;  // text_marks()
};
RowScan scan_row(const RowSource& source, int64_t index, const RowReading& reading);

/// The problem of an image file: reason and kind, without a row.
struct ImageFault {
  DataFault fault;
  std::string reason, next = {};
};
struct ImageScan {
  std::optional<ImageFault> fault = {};
  std::optional<ImageFault> oddity = {};  // readable, but shows little
  size_t content = 0;                     // hash of its bytes
  size_t key = 0;                         // of an image file: hash of its resolved path
};
/// Decodes an image completely, with the errors of training, and checks whether it can be fitted.
ImageScan scan_image(const std::string& root, const data::Row& row, const std::string& name,
                     const data::EncodeOptions& options);

/// task(0) ... task(count - 1), each once, on `workers` threads; ends early after a signal.
/// Rethrows an exception of a task.
void run_in_parallel(int64_t count, int64_t workers, const std::string& label,
                     const std::function<void(int64_t)>& task);

}  // namespace lft::debug
