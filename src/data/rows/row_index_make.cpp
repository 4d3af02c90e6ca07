#include "src/data/rows/row_index_make.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>

#include "src/base/bar.h"
#include "src/base/errors.h"
#include "src/base/parallel.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/rows/row_images.h"

namespace lft::data {
namespace {

/// Shown while it lasts.
class MakingProgress {
 public:
  MakingProgress(const std::string& path, int64_t bytes)
      : path_(path),
        bytes_(bytes),
        shown_([this](int64_t width) { return text(width); }, "the indexing") {}
  void at(int64_t rows, int64_t bytes) {
    rows_ = rows;
    read_ = bytes;
  }

 private:
  std::string text(int64_t width) const {
    const int64_t read = read_;
    const std::string line =
        "indexing " + path_ + ": " + with_commas(rows_) + " rows, " +
        format_number(100.0 * static_cast<double>(read) / static_cast<double>(bytes_), "%.0f%%");
    return width == 0 ? line : with_bar(line, read, bytes_, width);
  }

  const std::string path_;
  const int64_t bytes_;
  std::atomic<int64_t> rows_{0}, read_{0};
  const Shown shown_;  // last: its thread reads the others
};

}  // namespace

RowIndexMaker::RowIndexMaker(RowIndex& index, const RowVisitor& visit)
    : index_(index), visit_(visit), scan_(scan_rows(index.file_)) {}

void RowIndexMaker::make() {
  const int64_t threads = all_cores();
  parallel_for(threads, threads, [this](int64_t thread) {
    try {
      work(/*draws=*/thread == 0);
    } catch (...) {
      const std::lock_guard lock(putting_);
      failed_ = true;
      put_.notify_all();
      throw;
    }
  });
  if (mixed_) throw Error(*mixed_);
  offsets_.push_back(end_);
  index_.form_ = scan_->form();
  index_.hash_ = hash_.hex();
  Columns& columns = index_.columns_;
  columns.set("offsets", std::move(offsets_));
  columns.set("digests", std::move(digests_));
  columns.set("said", std::move(row_hashes_));
  columns.set("image_begin", std::move(image_begin_));
  columns.set("image_numbers", std::move(image_numbers_));
  columns.set("name_begin", std::move(name_begin_));
  columns.set("names", std::move(names_));
  columns.set("image_keys", std::move(image_keys_));
  columns.set("jumps", std::move(jumps_));
}

/// Reads the next rows of the file; false after the last, and after an error in another thread: a
/// scan that has failed would report something else.
bool RowIndexMaker::take(RowBatch& batch) {
  const std::lock_guard lock(scanning_);
  if (scan_failed_) return false;
  try {
    return scan_->next(batch);
  } catch (...) {
    scan_failed_ = true;
    throw;
  }
}

void RowIndexMaker::work(bool draws) {
  std::optional<MakingProgress> progress;
  if (draws) progress.emplace(index_.shown_, index_.stamp_.bytes);
  for (RowBatch batch; take(batch);) {
    if (requested_signal() != 0) throw Stopped();
    if (progress) progress->at(batch.first_row, batch.rows.front().offset);
    if (only_scans_) batch.rows.clear();
    Done done = read(std::move(batch));
    if (visit_ && !done.rows.empty()) visit_(done.batch.first_row, done.rows);
    put_down(std::move(done));
  }
}

RowIndexMaker::Done RowIndexMaker::read(RowBatch batch) {
  Done done{.batch = std::move(batch),
            .rows = {},
            .digests = {},
            .hashes = {},
            .images = {},
            .canonical = {}};
  const std::string& path = index_.shown_;
  for (size_t i = 0; i < done.batch.rows.size(); ++i) {
    const std::string_view text = done.batch.row(i);
    const std::string where = row_where(path, scan_->form(), done.batch.rows[i].place);
    ReadRow read = read_row(done.batch, i, where, done.batch.first_row + static_cast<int64_t>(i),
                            index_.rules_);
    if (read.bad && !index_.rules_.keep_bad) only_scans_ = true;
    // Like row_to_json, without the position: moved rows are the same data.
    const std::string content = row_content(read.row);
    done.canonical += "{\"id\":" + io::Json(read.row.id).dump() + "," + content.substr(1) + "\n";
    done.hashes.push_back(read.bad ? 0 : row_content_hash(content));
    done.digests.push_back(placed_digest(text.data(), text.size(), 0));
    done.images.push_back(images_of(read.row));
    done.rows.push_back(std::move(read));
  }
  done.batch.text.clear();
  done.batch.text.shrink_to_fit();
  return done;
}

/// Appends in the order of the file; a thread that is far ahead waits.
void RowIndexMaker::put_down(Done done) {
  constexpr size_t kMostWaiting = 16;
  std::unique_lock lock(putting_);
  const int64_t number = done.batch.number;
  put_.wait(lock, [&] { return failed_ || number == next_ || waiting_.size() < kMostWaiting; });
  if (failed_) return;
  waiting_.emplace(number, std::move(done));
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    append(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    ++next_;
  }
  put_.notify_all();
}

void RowIndexMaker::append(Done& done) {
  hash_.update(done.canonical);
  const auto ends = [this] { return mixed_ || (!index_.rules_.keep_bad && !index_.bad_.empty()); };
  for (size_t i = 0; i < done.rows.size() && !ends(); ++i) {
    const RawRow& raw = done.batch.rows[i];
    const auto index = static_cast<int64_t>(offsets_.size());
    const ReadRow& read = done.rows[i];
    try {
      index_.format_.add(read.keys, read.row.where);
    } catch (const Error& error) {
      mixed_ = error;
    }
    if (read.bad) index_.bad_.emplace(index, *read.bad);
    if (counts_lines(scan_->form()) && raw.place != last_place_ + 1)
      jumps_.insert(jumps_.end(), {index, raw.place});
    last_place_ = raw.place;
    end_ = raw.end;
    offsets_.push_back(raw.offset);
    digests_.push_back(done.digests[i]);
    row_hashes_.push_back(done.hashes[i]);
    for (const NamedImage& image : done.images[i]) image_numbers_.push_back(image_number(image));
    image_begin_.push_back(static_cast<int64_t>(image_numbers_.size()));
  }
}

/// Of a pair both sides' images, once if they are the same.
std::vector<RowIndexMaker::NamedImage> RowIndexMaker::images_of(const Row& row) {
  std::vector<NamedImage> images;
  for (const std::string& name : row.images) images.push_back({name, embedded_key(row, name)});
  if (row.rejected && row.rejected->images != row.images)
    for (const std::string& name : row.rejected->images)
      images.push_back({name, embedded_key(*row.rejected, name)});
  return images;
}

/// Two members of a tar file may have one name.
int32_t RowIndexMaker::image_number(const NamedImage& image) {
  const std::string& name = image.name;
  const auto [found, fresh] =
      numbers_.emplace(image.key == 0 ? name : name + " " + std::to_string(image.key),
                       static_cast<int32_t>(numbers_.size()));
  if (!fresh) return found->second;
  if (numbers_.size() > std::numeric_limits<int32_t>::max())
    refuse(ErrorKind::kInput, "more image files than a data file may name", index_.file_.path());
  names_.insert(names_.end(), name.begin(), name.end());
  name_begin_.push_back(static_cast<int64_t>(names_.size()));
  image_keys_.push_back(image.key);
  return found->second;
}

}  // namespace lft::data
