// Reads every row and decodes every image of a recipe's data, and collects everything that would
// stop or harm training. Loads no weights, writes nothing, prints nothing.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// In the order in which they are reported; from kTruncated on they are warnings, and from
/// kWhiteImage on they concern an image that is read.
enum class DataFault {
  kFile,
  kRow,
  kEmptyAnswer,
  kMarks,
  kTokens,
  kImagePath,
  kMissingImage,
  kBrokenImage,
  kCutImage,
  kNoLabel,
  kEos,
  kPrepared,
  kTruncated,
  kDuplicateId,
  kDuplicateRow,
  kTrainedOn,
  kMarkInText,
  kControl,
  kContradiction,
  kOneAnswer,
  kShifted,
  kEqualAnswers,
  kSpaceOnly,
  kLongerChosen,
  kOtherPrompt,
  kWhiteImage,
  kBlankImage,
  kNarrowImage,
  kDamagedScan,
};
constexpr int kDataFaults = 29;

struct DataProblem {
  DataFault fault = DataFault::kFile;
  std::string where, id,
      reason;        // file:line or file[index]; id is empty if the row has no readable one
  std::string next;  // the advice of its error; may be empty
};

/// Figures of one data file. Token counts include image positions; `tokens` and `supervised` are
/// those within data.max_tokens.
struct DataFigures {
  std::string key, path;  // "data.train" or "data.eval"
  int64_t rows = 0, malformed = 0, images = 0;
  int64_t bad = 0;  // rows that data.on_bad_sample is about: malformed, or a sample cannot be made
  int64_t tokens = 0, supervised = 0, without_labels = 0;
  int64_t masked = 0;                      // answers excluded from the loss: weight 0, loss false
  int64_t desirable = 0, undesirable = 0;  // rows of KTO by label
  int64_t replies = 0,
          replies_with_eos = 0;  // its last token is the supervised end token and within the limit
  int64_t truncated = 0, labels_lost = 0,
          replies_cut = 0;  // rows cut, supervised tokens and ends of replies after the limit
  std::array<int64_t, 5>
      lengths{};  // before truncation: shortest, then the 50th, 90th, 95th and 99th percentile
  int64_t longest = 0;
  std::string longest_where, longest_id;
};

struct DataReport {
  static constexpr size_t kKept =
      100;  // number of problems of a kind that are kept; the counts are exact
  std::vector<DataFigures> files;
  std::map<DataFault, int64_t> counts;
  std::map<DataFault, std::vector<DataProblem>> first;  // by row, data.train before data.eval
  int64_t max_tokens = 0;
  std::string eos;
  bool pairs = false;                    // each row is a pair of answers
  bool skips = false;                    // data.on_bad_sample: skip
  int64_t max_bad = 0;                   // with it, the limit of bad rows of a data set
  int64_t errors_of_bad = 0;             // the errors of bad rows
  int64_t image_files = 0, decoded = 0;  // different names, and those that were decoded
  double seconds = 0;                    // of decoding and reading them
  int64_t workers = 0;
  bool stopped = false;  // a signal was received: the rest was not read

  void add(DataProblem problem);
  int64_t count(bool of_warnings) const;
  int64_t errors() const { return count(false); }
  int64_t warnings() const { return count(true); }
  /// Whether training stops: at an error, or, where bad rows are skipped, at an error of another
  /// row, at too many bad rows of a data set, or without another row.
  bool stops_training() const;
  bool has_too_many_bad() const;  // more than max_bad in a data set, where they are skipped
};

/// kInput and kUsage if model, tokenizer or recipe cannot be used; problems of the data are in the
/// report. 0 workers: one for each core. The result does not depend on their number.
DataReport validate_data(const recipe::Recipe& recipe, int64_t workers);

}  // namespace lft::debug
