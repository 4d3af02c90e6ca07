#include "src/debug/data/validate_scan.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/signals.h"
#include "src/data/encode.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

std::string reason_of(const ErrorInfo& info) {
  std::string reason = info.what;
  if (!info.found.empty()) reason += ": " + info.found;
  if (!info.expected.empty()) reason += "; expected " + info.expected;
  return reason;
}

/// A malformed row has no id, and its error says where in the row it is: "rows.json[3]:
/// conversations[1]".
DataProblem malformed_row(const data::Row& row, const ErrorInfo& info) {
  const bool empty = info.what == data::kEmptyAnswer || info.what == data::kNoAnswer;
  const std::string inside = info.where.starts_with(row.where + ": ")
                                 ? " in " + info.where.substr(row.where.size() + 2)
                                 : "";
  return {.fault = empty ? DataFault::kEmptyAnswer : DataFault::kRow,
          .where = row.where,
          .id = "",
          .reason = reason_of(info) + inside};
}

std::string content_hash(const data::Row& row) {
  io::Json json = data::row_to_json(row);
  json.erase("where");
  json.erase("id");
  return sha256(json.dump()).substr(0, 32);
}

/// Gathers the problems of one row: each check runs whatever the others found.
class RowCheck {
 public:
  RowCheck(const data::Row& row, RowScan& scan) : row_(row), scan_(scan) {}

  void found(DataFault fault, const std::string& reason) {
    scan_.problems.push_back(
        {.fault = fault, .where = row_.where, .id = row_.id, .reason = reason});
  }
  /// Whether `check` went through; what it threw is a problem of the row.
  template <typename Check>
  bool passes(DataFault fault, const Check& check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      found(fault, reason_of(error.info()));
      return false;
    }
  }

 private:
  const data::Row& row_;
  RowScan& scan_;
};

/// Each reply ends with the end token, and it is supervised: else a model never learns to stop.
void check_replies(const data::EncodedText& text, const text::Tokenizer& tokenizer,
                   const data::EncodeOptions& options, RowCheck& check, RowScan& scan) {
  const int64_t eos = tokenizer.id_of(options.eos);
  int64_t position = 0;
  size_t next = 0;
  for (const text::Rendered::Span& span : text.rendered.supervised) {
    size_t last = text.tokens.size();
    for (; next < text.tokens.size() && text.tokens[next].begin < span.end; ++next) {
      if (text.tokens[next].end > span.begin) last = next;
      position +=
          text.tokens[next].id == options.config.image_token ? options.config.image_positions() : 1;
    }
    ++scan.replies;
    scan.replies_cut += position > options.max_tokens;
    if (last < text.tokens.size() && text.tokens[last].id == eos && text.supervised[last]) {
      ++scan.replies_with_eos;
      continue;
    }
    const std::string token = last == text.tokens.size()
                                  ? "no token"
                                  : quote_text(tokenizer.token_of(text.tokens[last].id), 40);
    check.found(DataFault::kEos, "reply " + std::to_string(scan.replies) + " ends with " + token +
                                     "; expected a supervised " + quote_text(options.eos) +
                                     ", the end token");
  }
}

/// What the limit of tokens takes away.
void check_limit(const data::Sample& whole, const data::Sample& kept,
                 const data::EncodeOptions& options, RowCheck& check, RowScan& scan) {
  scan.kept = static_cast<int64_t>(kept.input_ids.size());
  scan.kept_labels = kept.supervised();
  const int64_t behind = scan.length - scan.kept;
  const std::string limit = "data.max_tokens = " + std::to_string(options.max_tokens);
  if (scan.kept_labels == 0) {
    check.found(DataFault::kNoLabel,
                scan.labels == 0 ? "no token of the row is supervised"
                                 : "its " + std::to_string(scan.labels) +
                                       " supervised tokens lie behind " + limit + "; the row has " +
                                       std::to_string(whole.input_ids.size()) + " tokens");
  } else if (behind > 0) {
    check.found(DataFault::kTruncated,
                std::to_string(behind) + " of " + std::to_string(scan.length) +
                    " tokens lie behind " + limit + ", " +
                    std::to_string(scan.labels - scan.kept_labels) + " of " +
                    std::to_string(scan.labels) + " supervised tokens among them");
  }
}

void scan_text(const RowSource& source, const data::Row& row, const text::Tokenizer& tokenizer,
               const data::EncodeOptions& options, RowCheck& check, RowScan& scan,
               const data::Sample* stored) {
  data::EncodedText text;
  if (!check.passes(DataFault::kMarks, [&] { data::check_marks(row); })) return;
  if (!check.passes(DataFault::kTokens, [&] { text = data::encode_text(row, tokenizer, options); }))
    return;
  const data::Sample whole = data::expand_images(text, row, options);
  scan.readable = true;
  scan.length = static_cast<int64_t>(whole.input_ids.size());
  scan.labels = whole.supervised();
  check_replies(text, tokenizer, options, check, scan);
  data::Sample kept = whole;
  if (!check.passes(DataFault::kCutImage, [&] { data::truncate_sample(kept, row, options); }))
    return;
  check_limit(whole, kept, options, check, scan);
  if (stored != nullptr && (stored->input_ids != kept.input_ids || stored->labels != kept.labels)) {
    check.found(DataFault::kPrepared, "the tokens or labels in " + source.path +
                                          " are not those of the row; run lft prepare again");
  }
}

/// A line that is drawn over on a terminal, and nothing elsewhere.
class ScanProgress {
 public:
  explicit ScanProgress(const std::string& label, int64_t count)
      : label_(label), count_(count), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~ScanProgress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }
  void draw(int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    drawn_ = true;
    std::fprintf(stderr, "\r\x1b[K%s %lld of %lld", label_.c_str(), static_cast<long long>(done),
                 static_cast<long long>(count_));
  }

 private:
  std::string label_;
  int64_t count_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

RowScan scan_row(const RowSource& source, int64_t index, const text::Tokenizer& tokenizer,
                 const data::EncodeOptions& options) {
  RowScan scan;
  const data::Row& row = source.rows.rows[static_cast<size_t>(index)];
  if (const auto bad = source.rows.bad.find(index); bad != source.rows.bad.end()) {
    scan.problems.push_back(malformed_row(row, bad->second.info()));
    return scan;
  }
  scan.content = content_hash(row);
  RowCheck check(row, scan);
  if (source.prepared == nullptr) {
    scan_text(source, row, tokenizer, options, check, scan, nullptr);
    return scan;
  }
  data::Sample stored;
  if (!check.passes(DataFault::kPrepared, [&] { stored = source.prepared->get(index); }))
    return scan;
  scan_text(source, row, tokenizer, options, check, scan, &stored);
  return scan;
}

std::optional<ImageFault> scan_image(const std::string& root, const std::string& name,
                                     const data::EncodeOptions& options) {
  DataFault fault = DataFault::kImagePath;
  try {
    const io::ImageLimits& limits = options.image_limits;
    const std::string path = io::image_path(root, name, limits.follow_symlinks);
    fault = DataFault::kMissingImage;
    if (!io::path_exists(path))
      return ImageFault{fault, quote_text(name) + ": no such file " + path};
    fault = DataFault::kBrokenImage;
    const io::ImageSize image =
        io::check_image(io::read_file(path, limits.max_bytes), path, limits);
    data::check_fit(image.width, image.height, options.config.vision.image_size, options.image_fit);
    return std::nullopt;
  } catch (const Error& error) {
    const bool no_decoder =
        error.kind() == ErrorKind::kUsage;  // a kind of image that this build cannot read
    if (error.kind() != ErrorKind::kInput && !no_decoder) throw;
    return ImageFault{fault, quote_text(name) + ": " + reason_of(error.info())};
  }
}

void run_in_parallel(int64_t count, int64_t workers, const std::string& label,
                     const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    next = count;
  };
  const auto work = [&](bool draws) {
    std::optional<ScanProgress> progress;
    if (draws) progress.emplace(label, count);
    try {
      for (int64_t i; (i = next++) < count && requested_signal() == 0;) {
        if (progress) progress->draw(i);
        task(i);
      }
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < std::min(workers, count); ++i) threads.emplace_back(work, false);
  } catch (...) {
    fail();  // no memory for a thread: those that run are still to be joined
  }
  work(true);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lft::debug
