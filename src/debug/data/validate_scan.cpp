#include "src/debug/data/validate_scan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/encode.h"
#include "src/data/rows/row_images.h"
#include "src/data/store/data_changed.h"
#include "src/debug/data/validate_pairs.h"
#include "src/debug/data/validate_texts.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

/// The advice with which training stops at the same error.
std::string next_of(const ErrorInfo& info, const char* otherwise) {
  return info.next.empty() ? otherwise : info.next;
}

std::string reason_of(const ErrorInfo& info) {
  std::string reason = info.what;
  if (!info.found.empty()) reason += ": " + info.found;
  if (!info.expected.empty()) reason += "; expected " + info.expected;
  return reason;
}

/// A malformed row has no id, and its error contains the position in the row: "rows.json[3]:
/// conversations[1]".
DataProblem malformed_row(const data::Row& row, const ErrorInfo& info) {
  const bool empty = info.what == data::kEmptyAnswer || info.what == data::kNoAnswer;
  const std::string inside = info.where.starts_with(row.where + ": ")
                                 ? " in " + info.where.substr(row.where.size() + 2)
                                 : "";
  return {.fault = empty ? DataFault::kEmptyAnswer : DataFault::kRow,
          .where = row.where,
          .id = "",
          .reason = reason_of(info) + inside,
          .next = next_of(info, data::kFixRow)};
}

size_t bytes_hash(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }

/// Collects figures and problems of one row; the checks are independent.
class RowCheck {
 public:
  RowCheck(const RowSource& source, const data::Row& row, const RowReading& reading)
      : source_(source),
        row_(row),
        marks_(reading.marks),
        tokenizer_(reading.tokenizer),
        options_(reading.options),
        image_root_(source.image_root) {}

  RowScan run(int64_t index) {
    scan_.text = text_hash(row_);
    scan_.said = reply_hashes(row_);
    const std::vector<text::Turn> turns = row_.turns();
    scan_.masked = std::ranges::count(turns, false, &text::Turn::learnt);
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      const std::string of = " of turn " + std::to_string(turn + 1);
      look_into(turns[turn].question, "the question" + of);
      look_into(turns[turn].answer, "the answer" + of);
    }
    if (const std::string* system = text::system_of(row_.messages()))
      look_into(*system, "the system text");
    std::optional<data::Sample> stored;
    const auto read = [&] {
      stored = source_.prepared->get(index);
      if (&row_ != &source_.rows.rows[static_cast<size_t>(index)])  // the other side of a pair
        stored = data::Sample(stored->rejected.at(0));
    };
    if (source_.prepared == nullptr || passes(DataFault::kPrepared, read)) check_text(stored);
    if (stored) {
      for (const data::PixelImage& image : stored->images)
        scan_.pixels = mix_hashes(
            scan_.pixels,
            bytes_hash({reinterpret_cast<const char*>(image.chw.data()), image.chw.size()}));
    }
    return std::move(scan_);
  }

 private:
  void look_into(const std::string& text, const std::string& where) {
    if (const std::vector<std::string> marks = marks_in(text, marks_); !marks.empty())
      found(DataFault::kMarkInText, join(marks) + " in " + where);
    if (const std::vector<std::string> controls = controls_in(text); !controls.empty())
      found(DataFault::kControl, join(controls) + " in " + where);
  }

  void found(DataFault fault, const std::string& reason, const std::string& next = {}) {
    scan_.problems.push_back(
        {.fault = fault, .where = row_.where, .id = row_.id, .reason = reason, .next = next});
  }
  /// Whether `check` succeeded; an exception is a problem of the row.
  template <typename Check>
  bool passes(DataFault fault, const Check& check) {
    try {
      check();
      return true;
    } catch (const data::DataChanged& error) {  // no bad sample: training stops
      found(fault, reason_of(error.info()), next_of(error.info(), data::kFixRow));
      return false;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      scan_.bad = true;
      found(fault, reason_of(error.info()), next_of(error.info(), data::kFixRow));
      return false;
    }
  }

  void check_text(const std::optional<data::Sample>& stored) {
    text::Rendered rendered;
    data::EncodedText text;
    if (!passes(DataFault::kMarks, [&] { data::check_marks(row_); })) return;
    if (!passes(DataFault::kRow, [&] { rendered = data::render_row(row_, options_, false); }))
      return;
    std::vector<family::ImagePlan> images;
    try {
      images = stored ? data::plans_of(stored->images, options_)
                      : data::plan_images(row_, image_root_, options_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      return;  // the image is reported by the image scan
    }
    const auto encode = [&] {
      text = data::encode_rendered(row_, std::move(rendered), images, tokenizer_, options_);
    };
    if (!passes(DataFault::kTokens, encode)) return;
    const data::Sample whole = data::expand_images(text, row_, images, options_);
    scan_.readable = true;
    scan_.length = static_cast<int64_t>(whole.input_ids.size());
    scan_.labels = whole.supervised();
    check_replies(text, images);
    data::Sample kept = whole;
    if (!passes(DataFault::kCutImage, [&] { data::truncate_sample(kept, row_, images, options_); }))
      return;
    check_limit(kept);
    if (stored && (stored->input_ids != kept.input_ids || stored->labels != kept.labels)) {
      found(DataFault::kPrepared, "the tokens or labels in " + source_.path +
                                      " are not those of the row; run lft prepare again");
    }
  }

  /// Each reply must end with a supervised end token: otherwise a model never learns to stop.
  void check_replies(const data::EncodedText& text, const std::vector<family::ImagePlan>& images) {
    std::vector<int64_t> runs;
    for (const family::ImagePlan& image : images)
      runs.insert(runs.end(), image.runs.begin(), image.runs.end());
    auto run = runs.begin();
    const int64_t eos = tokenizer_.id_of(options_.eos);
    int64_t position = 0;
    size_t next = 0;
    for (const text::Rendered::Span& span : text.rendered.supervised) {
      size_t last = text.tokens.size();
      for (; next < text.tokens.size() && text.tokens[next].begin < span.end; ++next) {
        if (text.tokens[next].end > span.begin) last = next;
        position += text.tokens[next].id == options_.config.image_token ? *run++ : 1;
      }
      ++scan_.replies;
      const bool cut = position > options_.max_tokens;
      scan_.replies_cut += cut;
      if (last < text.tokens.size() && text.tokens[last].id == eos && text.supervised[last]) {
        scan_.replies_with_eos += !cut;
        continue;
      }
      const std::string token = last == text.tokens.size()
                                    ? "no token"
                                    : quote_text(tokenizer_.token_of(text.tokens[last].id), 40);
      found(DataFault::kEos, "reply " + std::to_string(scan_.replies) + " ends with " + token +
                                 "; expected a supervised " + quote_text(options_.eos) +
                                 ", the end token");
    }
  }

  /// Reports what the token limit cuts off.
  void check_limit(const data::Sample& kept) {
    scan_.kept = static_cast<int64_t>(kept.input_ids.size());
    scan_.kept_labels = kept.supervised();
    const std::string length = std::to_string(scan_.length), labels = std::to_string(scan_.labels),
                      limit = "data.max_tokens = " + std::to_string(options_.max_tokens);
    if (scan_.kept_labels == 0) {
      found(DataFault::kNoLabel,
            scan_.labels == 0
                ? scan_.masked > 0 ? "all its answers are masked by weight 0 or loss false"
                                   : "no token of the row is supervised"
                : "its " + labels + " supervised tokens are beyond " + limit + "; the row has " +
                      length + " tokens",
            scan_.labels == 0 ? data::kFixRow : "raise data.max_tokens, or shorten the row");
    } else if (scan_.length > scan_.kept) {
      found(DataFault::kTruncated, std::to_string(scan_.length - scan_.kept) + " of " + length +
                                       " tokens are beyond " + limit + ", " +
                                       std::to_string(scan_.labels - scan_.kept_labels) + " of " +
                                       labels + " supervised tokens among them");
    }
  }

  const RowSource& source_;
  const data::Row& row_;
  const std::vector<std::string>& marks_;
  const text::Tokenizer& tokenizer_;
  const data::EncodeOptions& options_;
  const std::string& image_root_;
  RowScan scan_;
};

std::string advice_for_file(const std::string& root, const data::Row& row, const std::string& name,
                            const io::ImageLimits& limits) {
  try {
    data::read_row_image(row, name, root, limits);
  } catch (const Error& error) {
    return next_of(error.info(), data::kFixImage);
  }
  return data::kFixImage;
}

/// 16-bit grey is clipped at 255, as in PIL's convert("RGB"): brighter values turn white.
std::optional<ImageFault> white_image(const std::string& name, std::string_view bytes,
                                      const io::ImageLimits& limits) {
  if (!io::read_image_header(bytes, name, limits).deep_grey) return std::nullopt;
  const io::RgbImage image = io::decode_image(bytes, name, limits);
  const auto white = static_cast<double>(std::ranges::count(image.rgb_hwc, 255)),
             share = white / static_cast<double>(image.rgb_hwc.size());
  if (share < 0.5) return std::nullopt;
  return ImageFault{DataFault::kWhiteImage,
                    quote_text(name) + " has 16 bits of grey, and what is above 255 is white: " +
                        format_number(100 * share, "%.0f%%") +
                        " of it; scale it to 8 bits and save it again"};
}

bool is_flat(const io::RgbImage& image) {
  const uint8_t* const first = image.rgb_hwc.data();
  for (size_t at = 3; at < image.rgb_hwc.size(); at += 3)
    if (!std::equal(first, first + 3, first + at)) return false;
  return true;
}

/// An image drawn only in the alpha channel is empty without it.
std::optional<ImageFault> blank_image(const std::string& name, std::string_view bytes,
                                      io::ImageLimits limits) {
  if (limits.alpha == io::Alpha::kWhite ||
      !io::read_image_header(bytes, name, limits).transparent ||
      !is_flat(io::decode_image(bytes, name, limits)))
    return std::nullopt;
  limits.alpha = io::Alpha::kWhite;
  if (is_flat(io::decode_image(bytes, name, limits))) return std::nullopt;
  return ImageFault{DataFault::kBlankImage, quote_text(name) +
                                                " is one flat colour without its transparency; " +
                                                "data.alpha: white shows it on white"};
}

std::optional<ImageFault> narrow_image(const std::string& name, const io::ImageCheck& image,
                                       const data::EncodeOptions& options) {
  const std::string what = options.images->narrow({image.width, image.height});
  if (what.empty()) return std::nullopt;
  const std::string size = std::to_string(image.width) + " x " + std::to_string(image.height);
  return ImageFault{DataFault::kNarrowImage,
                    quote_text(name) + " is " + size + ": " + what + "; cut it into parts"};
}

std::optional<ImageFault> damaged_scan(const std::string& name, const io::ImageCheck& image) {
  if (image.damage.empty()) return std::nullopt;
  return ImageFault{DataFault::kDamagedScan,
                    quote_text(name) + " is damaged between its restart markers (" + image.damage +
                        "), and is read as PIL reads it; look at it, and save it again"};
}

std::optional<ImageFault> image_oddity(const std::string& name, std::string_view bytes,
                                       const io::ImageCheck& image,
                                       const data::EncodeOptions& options) {
  std::optional<ImageFault> odd = damaged_scan(name, image);
  if (!odd) odd = narrow_image(name, image, options);
  if (!odd) odd = white_image(name, bytes, options.image_limits);
  return odd ? odd : blank_image(name, bytes, options.image_limits);
}

/// A progress line that is overwritten on a terminal; no output elsewhere.
class ScanProgress {
 public:
  explicit ScanProgress(const std::string& label, int64_t count) : label_(label), count_(count) {}
  ~ScanProgress() { show_status(""); }
  void draw(int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    show_status(label_ + " " + std::to_string(done) + " of " + std::to_string(count_));
  }

 private:
  std::string label_;
  int64_t count_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string text_hash(data::Row row) {
  row.images.clear();
  if (row.rejected) {
    data::Row other = *row.rejected;
    other.images.clear();
    row.rejected = std::make_shared<const data::Row>(std::move(other));
  }
  return sha256(data::row_content(row)).substr(0, 32);
}

RowScan scan_row(const RowSource& source, int64_t index, const RowReading& reading) {
  const data::Row& row = source.rows.rows[static_cast<size_t>(index)];
  if (const auto bad = source.rows.bad.find(index); bad != source.rows.bad.end()) {
    RowScan scan;
    scan.bad = true;
    scan.problems.push_back(malformed_row(row, bad->second.info()));
    return scan;
  }
  RowScan scan = RowCheck(source, row, reading).run(index);
  if (!row.rejected) return scan;
  const RowScan other = RowCheck(source, *row.rejected, reading).run(index);
  scan.problems.insert(scan.problems.end(), other.problems.begin(), other.problems.end());
  const std::vector<DataProblem> of_pair = pair_problems(row);
  scan.problems.insert(scan.problems.end(), of_pair.begin(), of_pair.end());
  scan.bad = scan.bad || other.bad;
  scan.readable = scan.readable && other.readable;
  scan.length += other.length;
  scan.kept += other.kept;
  scan.labels += other.labels;
  scan.kept_labels += other.kept_labels;
  scan.replies += other.replies;
  scan.replies_with_eos += other.replies_with_eos;
  scan.replies_cut += other.replies_cut;
  scan.masked += other.masked;
  return scan;
}

ImageScan scan_image(const std::string& root, const data::Row& row, const std::string& name,
                     const data::EncodeOptions& options) {
  DataFault fault = DataFault::kImagePath;
  try {
    const io::ImageLimits& limits = options.image_limits;
    std::string path = name;
    if (!data::comes_with_row(name)) {
      path = io::image_path(root, name, limits.follow_symlinks);
      fault = DataFault::kMissingImage;
      if (!io::path_exists(path))
        return {ImageFault{fault, quote_text(name) + ": no such file " + path,
                           advice_for_file(root, row, name, limits)}};
    }
    fault = DataFault::kBrokenImage;
    const io::FileBytes bytes = data::read_row_image(row, name, root, limits);
    const io::ImageCheck image = io::check_image(bytes, path, limits);
    options.images->plan({image.width, image.height});
    const size_t content = bytes_hash(bytes);
    return {.oddity = image_oddity(name, bytes, image, options),
            .content = content,
            .key = data::comes_with_row(name) ? content : bytes_hash(path)};
  } catch (const Error& error) {
    const bool no_decoder =
        error.kind() == ErrorKind::kUsage;  // a kind of image that this build does not support
    if (error.kind() != ErrorKind::kInput && !no_decoder) throw;
    return {ImageFault{fault, quote_text(name) + ": " + reason_of(error.info()),
                       next_of(error.info(), data::kFixImage)}};
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
    fail();  // no memory for a thread: the running ones must be joined
  }
  work(true);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lft::debug
