#include "src/debug/data/validate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/data/prepared.h"
#include "src/data/row_dataset.h"
#include "src/data/rows/row_images.h"
#include "src/data/sources/data_files.h"
#include "src/debug/data/validate_print.h"
#include "src/debug/data/validate_scan.h"
#include "src/debug/data/validate_texts.h"
#include "src/io/files.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::debug {
namespace {

/// Rows of a file, or of a prepared directory, without an image.
RowSource open_source(const std::string& key, const data::DataFile& file,
                      const std::string& image_root, const data::EncodeOptions& options) {
  const std::string& shown = file.shown.empty() ? file.path : file.shown;
  RowSource source{.key = key,
                   .path = shown,
                   .image_root = data::image_root_of(image_root, file),
                   .rows = {},
                   .prepared = nullptr};
  if (source.image_root.empty()) source.image_root = ".";
  if (!io::is_directory(file.path)) {
    source.rows = data::read_row_file(file.path, data::row_rules(options, file), shown);
    return source;
  }
  source.prepared = data::open_prepared(file.path, options);
  for (int64_t i = 0; i < source.prepared->size(); ++i)
    source.rows.rows.push_back(source.prepared->row(i));
  return source;
}

std::vector<RowSource> open_sources(const recipe::Recipe& recipe,
                                    const data::EncodeOptions& options, DataReport& report) {
  std::vector<RowSource> sources;
  const auto open = [&](const std::string& key, const std::string& path,
                        const std::string& image_root) {
    try {
      std::vector<data::DataFile> files = data::data_files(path);
      if (files.empty()) files.push_back({.path = path});
      for (const data::DataFile& file : files)
        sources.push_back(open_source(key, file, image_root, options));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      const ErrorInfo& info = error.info();
      report.add({.fault = DataFault::kFile,
                  .where = info.where.empty() ? path : info.where,
                  .id = "",
                  .reason = info.what + (info.found.empty() ? "" : ": " + info.found),
                  .next = info.next});
    }
  };
  const std::string& root = recipe.data.image_root;
  for (const recipe::Source& source : recipe.data.train.sources())
    open("data.train", source.path, source.image_root.empty() ? root : source.image_root);
  if (!recipe.data.eval.empty()) open("data.eval", recipe.data.eval, root);
  return sources;
}

/// An image, and the first row that contains it.
struct NamedImage {
  const RowSource* source;
  const data::Row* row;
  std::string name;
};

/// A key that distinguishes images of all sources: a file may be used by several, an image embedded
/// in a row belongs to its source.
std::string image_key(const RowSource& source, const std::string& name) {
  return (data::comes_with_row(name) ? source.path : source.image_root) + "/" + name;
}

/// Each image once, in the order of the rows.
std::vector<NamedImage> named_images(const std::vector<RowSource>& sources) {
  std::vector<NamedImage> images;
  std::unordered_set<std::string> seen;
  for (const RowSource& source : sources) {
    if (source.prepared != nullptr) continue;
    for (const data::Row& row : source.rows.rows) {
      for (const data::Row* side = &row; side != nullptr; side = side->rejected.get()) {
        for (const std::string& name : side->images) {
          if (seen.insert(image_key(source, name)).second) images.push_back({&source, side, name});
        }
      }
    }
  }
  return images;
}

/// Keys of a row's texts and images; empty for a malformed row.
struct RowContent {
  std::string shown;  // by the images' keys, or the pixels of prepared data
  std::string named;  // by the images' names; empty if one is a part of the data file
};

/// Collects the findings for the rows of one source in the order of the rows.
class Tally {
 public:
  Tally(const RowSource& source, DataReport& report)
      : source_(source), report_(report), answers_(source.rows.rows) {
    figures_.key = source.key;
    figures_.path = source.path;
    figures_.rows = static_cast<int64_t>(source.rows.rows.size());
    figures_.malformed = static_cast<int64_t>(source.rows.bad.size());
  }

  RowContent add(size_t index, const RowScan& scan,
                 const std::unordered_map<std::string, ImageScan>& images) {
    const data::Row& row = source_.rows.rows[index];
    const int64_t errors_before = report_.errors();
    for (const DataProblem& problem : scan.problems) report_.add(problem);
    const auto [shown, key, whole] = look_at_images(row, scan.pixels, images);
    if (scan.bad || !whole) {
      ++figures_.bad;
      report_.errors_of_bad += report_.errors() - errors_before;
    }
    if (scan.text.empty()) return {};
    figures_.images += static_cast<int64_t>(row.images.size());
    RowContent content{scan.text + " " + std::to_string(key), named_content(row)};
    find_duplicates(index, content.shown);
    named_.emplace(content.named, index);
    if (row.desirable) find_labels(index, key);
    const std::optional<size_t> other =  // labelled answers to one question differ
        scan.readable && whole && !row.desirable ? answers_.add(index, shown, scan.said)
                                                 : std::nullopt;
    if (other) {
      problem(DataFault::kContradiction, row,
              "another answer than " + source_.rows.rows[*other].where +
                  " gives to the same images and text");
    }
    if (scan.readable) count(row, scan);
    return content;
  }

  /// Finds rows of `trained` that are repeated here. Prepared data has no image files.
  void compare(const Tally& trained, size_t index, const RowContent& content) {
    const bool by_name = (source_.prepared == nullptr) != (trained.source_.prepared == nullptr);
    const std::string& key = by_name ? content.named : content.shown;
    const auto& rows = by_name ? trained.named_ : trained.contents_;
    const auto same = rows.find(key);
    if (key.empty() || same == rows.end()) return;
    problem(DataFault::kTrainedOn, source_.rows.rows[index],
            "the same turns and images as " + trained.source_.rows.rows[same->second].where);
  }

  DataFigures finish() {
    const auto of_file = [&](DataFault fault, const std::string& reason) {
      if (!reason.empty())
        report_.add(
            {.fault = fault, .where = source_.path, .id = "", .reason = reason, .next = {}});
    };
    of_file(DataFault::kOneAnswer, answers_.one_answer());
    of_file(DataFault::kShifted, answers_.shifted());
    std::ranges::sort(lengths_);
    constexpr std::array<int64_t, 5> kPercent = {0, 50, 90, 95, 99};
    const auto count = static_cast<int64_t>(lengths_.size());
    for (size_t i = 0; i < kPercent.size() && count > 0; ++i) {  // nearest rank
      const int64_t rank = std::max<int64_t>((kPercent[i] * count + 99) / 100, 1);
      figures_.lengths[i] = lengths_[static_cast<size_t>(rank - 1)];
    }
    return figures_;
  }

 private:
  void problem(DataFault fault, const data::Row& row, const std::string& reason) {
    problem(ImageFault{.fault = fault, .reason = reason}, row);
  }
  void problem(const ImageFault& image, const data::Row& row) {
    report_.add({.fault = image.fault,
                 .where = row.where,
                 .id = row.id,
                 .reason = image.reason,
                 .next = image.next});
  }

  /// Reports the problems of the images of a row.
  struct Shown {
    size_t content, key;  // hashes of the images' bytes, and of their keys (ImageScan)
    bool whole = true;
  };
  Shown look_at_images(const data::Row& row, size_t pixels,
                       const std::unordered_map<std::string, ImageScan>& images) {
    Shown seen{.content = pixels, .key = pixels};
    for (const std::string& name : images_of(row)) {
      const std::string file = image_key(source_, name);
      const ImageScan& image = images.at(file);
      if (image.fault) problem(*image.fault, row);
      if (image.oddity) problem(*image.oddity, row);
      seen.whole = seen.whole && !image.fault;
      seen.content = mix_hashes(seen.content, image.content);
      seen.key = mix_hashes(seen.key, image.fault ? std::hash<std::string>()(file) : image.key);
    }
    return seen;
  }

  /// Of a pair both sides' images, once if they are the same; none of prepared data.
  std::vector<std::string> images_of(const data::Row& row) const {
    if (source_.prepared != nullptr) return {};
    std::vector<std::string> names = row.images;
    if (row.rejected && row.rejected->images != row.images)
      names.insert(names.end(), row.rejected->images.begin(), row.rejected->images.end());
    return names;
  }

  static std::string named_content(const data::Row& row) {
    const auto is_part = [](const std::string& name) { return data::is_tar_member(name); };
    return std::ranges::any_of(row.images, is_part) ? "" : sha256(data::row_content(row));
  }

  void find_duplicates(size_t index, const std::string& content) {
    const data::Row& row = source_.rows.rows[index];
    const auto [same_id, new_id] = ids_.emplace(row.id, index);
    if (!new_id)
      problem(DataFault::kDuplicateId, row,
              "the id of " + source_.rows.rows[same_id->second].where);
    const auto [same_row, new_row] = contents_.emplace(content, index);
    if (!new_row)
      problem(DataFault::kDuplicateRow, row,
              "the same turns and images as " + source_.rows.rows[same_row->second].where);
  }

  /// Counts the label and finds an earlier row with the same answer and the other label.
  void find_labels(size_t index, size_t images) {
    data::Row plain = source_.rows.rows[index];
    ++(*plain.desirable ? figures_.desirable : figures_.undesirable);
    plain.desirable.reset();
    const auto [same, is_new] =
        labelled_.emplace(text_hash(std::move(plain)) + " " + std::to_string(images), index);
    const data::Row& row = source_.rows.rows[index];
    if (!is_new && source_.rows.rows[same->second].desirable != row.desirable)
      problem(DataFault::kContradiction, row,
              "the other label than " + source_.rows.rows[same->second].where +
                  " has with the same turns and images");
  }

  void count(const data::Row& row, const RowScan& scan) {
    lengths_.push_back(scan.length);
    if (scan.length > figures_.longest) {
      figures_.longest = scan.length;
      figures_.longest_where = row.where;
      figures_.longest_id = row.id;
    }
    figures_.masked += scan.masked;
    figures_.replies += scan.replies;
    figures_.replies_with_eos += scan.replies_with_eos;
    if (scan.kept == 0) return;  // the limit would cut an image: training stops
    figures_.tokens += scan.kept;
    figures_.supervised += scan.kept_labels;
    figures_.without_labels += scan.kept_labels == 0;
    figures_.truncated += scan.kept < scan.length;
    figures_.labels_lost += scan.labels - scan.kept_labels;
    figures_.replies_cut += scan.replies_cut;
  }

  const RowSource& source_;
  DataReport& report_;
  AnswerTally answers_;
  DataFigures figures_;
  std::vector<int64_t> lengths_;
  // The first row with an id, a content by keys or by names, or of KTO a content without the
  // label.
  std::unordered_map<std::string, size_t> ids_, contents_, named_, labelled_;
};

void scan(const std::vector<RowSource>& sources, const text::Tokenizer& tokenizer,
          const data::EncodeOptions& options, DataReport& report) {
  const std::vector<NamedImage> names = named_images(sources);
  const RowReading reading{tokenizer, options, text_marks(tokenizer, options)};
  std::vector<ImageScan> looked(names.size());
  std::vector<std::vector<RowScan>> scans;
  auto tasks = static_cast<int64_t>(names.size());
  for (const RowSource& source : sources) {
    scans.emplace_back(source.rows.rows.size());
    tasks += static_cast<int64_t>(source.rows.rows.size());
  }
  const auto begin = std::chrono::steady_clock::now();
  run_in_parallel(tasks, report.workers, "validating: images and rows", [&](int64_t i) {
    auto at = static_cast<size_t>(i);
    if (at < names.size()) {
      const auto& [source, row, name] = names[at];
      looked[at] = scan_image(source->image_root, *row, name, options);
      return;
    }
    at -= names.size();
    size_t source = 0;
    for (; at >= scans[source].size(); ++source) at -= scans[source].size();
    scans[source][at] = scan_row(sources[source], static_cast<int64_t>(at), reading);
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.stopped = requested_signal() != 0;

  std::unordered_map<std::string, ImageScan> images;
  for (size_t i = 0; i < names.size(); ++i)
    images.emplace(image_key(*names[i].source, names[i].name), looked[i]);
  report.image_files = static_cast<int64_t>(names.size());
  report.decoded = std::ranges::count_if(
      looked, [](const ImageScan& image) { return !image.fault.has_value(); });
  std::vector<Tally> tallies;
  for (size_t s = 0; s < sources.size(); ++s) {
    tallies.emplace_back(sources[s], report);
    for (size_t i = 0; i < scans[s].size(); ++i) {
      const RowContent content = tallies[s].add(i, scans[s][i], images);
      for (size_t t = 0; t < s && sources[s].key != sources[t].key; ++t)
        tallies[s].compare(tallies[t], i, content);
    }
    report.files.push_back(tallies[s].finish());
  }
}

struct SetCount {
  int64_t rows = 0, bad = 0;
};
/// The rows of data.train and of data.eval, which may have several files.
std::map<std::string, SetCount> sets_of(const std::vector<DataFigures>& files) {
  std::map<std::string, SetCount> sets;
  for (const DataFigures& figures : files) {
    sets[figures.key].rows += figures.rows;
    sets[figures.key].bad += figures.bad;
  }
  return sets;
}

/// An advice without the setting that the recipe has.
std::string without_skip(const std::string& advice) {
  for (const char* begin : {"; data.on_bad_sample: skip", ", or set data.on_bad_sample: skip"})
    if (const size_t at = advice.find(begin); at != std::string::npos) return advice.substr(0, at);
  return advice;
}

}  // namespace

void DataReport::add(DataProblem problem) {
  std::vector<DataProblem>& kept = first[problem.fault];
  ++counts[problem.fault];
  if (kept.size() < kKept) kept.push_back(std::move(problem));
}

int64_t DataReport::count(bool of_warnings) const {
  int64_t sum = 0;
  for (const auto& [fault, count] : counts) sum += is_warning(fault) == of_warnings ? count : 0;
  return sum;
}

bool DataReport::has_too_many_bad() const {
  const auto is_over = [this](const auto& set) { return set.second.bad > max_bad; };
  return skips && std::ranges::any_of(sets_of(files), is_over);
}

bool DataReport::stops_training() const {
  if (!skips) return errors() > 0;
  const auto has_none = [](const auto& set) { return set.second.bad == set.second.rows; };
  return errors() > errors_of_bad || has_too_many_bad() ||
         std::ranges::any_of(sets_of(files), has_none);
}

DataReport validate_data(const recipe::Recipe& recipe, int64_t workers) {
  auto [tokenizer, options] = train::recipe_encoding(recipe);
  DataReport report;
  report.skips = options.skip_bad;
  report.max_bad = options.max_bad;
  options.skip_bad = true;  // rows that training may skip are checked, too
  report.max_tokens = options.max_tokens;
  report.eos = options.eos;
  report.pairs = options.pairs;
  report.workers =
      workers > 0 ? workers : std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const std::vector<RowSource> sources = open_sources(recipe, options, report);
  scan(sources, *tokenizer, options, report);
  if (report.skips)
    for (auto& [fault, problems] : report.first)
      for (DataProblem& problem : problems) problem.next = without_skip(problem.next);
  return report;
}

}  // namespace lft::debug
