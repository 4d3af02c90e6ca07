#include "src/data/rows/tar_scanner.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/rows/row_images.h"

namespace lft::data {
namespace {

constexpr size_t kFullBatch = 1u << 20;  // bytes of rows in a full batch
constexpr char kWriteSamples[] =
    "write each sample as KEY.json and its images next to it: KEY.jpg, or KEY.0.jpg, KEY.1.jpg";

/// The folder and base name up to its first dot, and the rest after that dot.
struct MemberName {
  std::string key, ending;
};
MemberName split_name(const std::string& name) {
  const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  const size_t point = std::min(name.find('.', base), name.size());
  return {name.substr(0, point), name.substr(std::min(point + 1, name.size()))};
}

/// Files that macOS and editors leave in an archive; webdataset skips them, too.
bool is_hidden(const std::string& name) { return name.compare(name.rfind('/') + 1, 1, ".") == 0; }

/// The next member that is not hidden.
bool next_member(TarReader& reader, TarMember& member) {
  bool found = reader.next(member);
  while (found && is_hidden(member.name)) found = reader.next(member);
  return found;
}

/// Members that are neither rows nor images (.txt, .cls, .npy) are ignored.
void add_member(TarSample& sample, const io::FileHandle& file, const TarMember& member,
                const std::string& ending) {
  if (ending == "json") {
    if (sample.row)
      refuse(ErrorKind::kInput, "a sample of a tar file with two rows", file.path(),
             quote_text(member.name, 80), {}, kWriteSamples);
    sample.row = member;
  } else if (ending.ends_with(".json")) {
    sample.other_row = member.name;
  } else if (has_image_ending(member.name)) {
    sample.images.push_back({.name = "tar:" + member.name,
                             .bytes = {},
                             .file = file.path(),
                             .offset = static_cast<int64_t>(member.offset),
                             .size = static_cast<int64_t>(member.bytes)});
  }
}

/// At most the limit of a row is read; a longer row is bad.
std::string row_text(const io::FileHandle& file, const TarSample& sample) {
  if (!sample.row) {
    const bool has_point = !sample.other_row.empty();
    refuse(ErrorKind::kInput, "a sample of a tar file without a row", file.path(),
           quote_text(has_point ? sample.other_row : sample.key, 80),
           "a member " + quote_text(sample.key + ".json", 80),
           has_point ? "a sample's name ends at its first point: write names without points"
                     : kWriteSamples);
  }
  std::string text(std::min<uint64_t>(sample.row->bytes, kRowLimits.max_bytes + 1), '\0');
  file.read_at(sample.row->offset, text.data(), text.size());
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.pop_back();
  return text;
}

}  // namespace

TarScanner::TarScanner(const io::FileHandle& file) : file_(file), reader_(file) {
  TarMember first;
  if (!next_member(reader_, first))
    refuse(ErrorKind::kInput, "the data file has no samples", file.path(), "an empty tar file", {},
           kWriteSamples);
  held_ = first;
}

bool TarScanner::take(TarSample& sample) {
  if (!held_) return false;
  const std::string key = split_name(held_->name).key;
  sample = {.key = key,
            .row = {},
            .other_row = {},
            .images = {},
            .begin = static_cast<int64_t>(held_->header)};
  TarMember member = *held_;
  held_.reset();
  do {
    const MemberName name = split_name(member.name);
    if (name.key != key) {
      held_ = member;
      break;
    }
    add_member(sample, file_, member, name.ending);
    sample.end = static_cast<int64_t>(reader_.at());
  } while (next_member(reader_, member));
  return true;
}

bool TarScanner::next(RowBatch& batch) {
  batch = {.number = batches_++, .first_row = rows_, .text = {}, .rows = {}};
  for (TarSample sample; batch.text.size() < kFullBatch && take(sample);) {
    if (!sample.row && sample.images.empty() && sample.other_row.empty()) continue;  // a README
    has_sample_ = true;
    const std::string text = row_text(file_, sample);
    batch.rows.push_back({.begin = batch.text.size(),
                          .size = text.size(),
                          .offset = sample.begin,
                          .end = sample.end,
                          .place = rows_++});
    batch.text += text;
    batch.images.push_back(std::move(sample.images));
  }
  if (!has_sample_)
    refuse(ErrorKind::kInput, "the data file has no samples", file_.path(),
           "no member that ends in .json", {}, kWriteSamples);
  return !batch.rows.empty();
}

RowText read_tar_row(const io::FileHandle& file, int64_t begin, int64_t end) {
  TarReader reader(file, static_cast<uint64_t>(begin), static_cast<uint64_t>(end));
  TarSample sample;
  for (TarMember member; next_member(reader, member);) {
    const MemberName name = split_name(member.name);
    sample.key = name.key;
    add_member(sample, file, member, name.ending);
  }
  return {.text = row_text(file, sample), .images = std::move(sample.images)};
}

}  // namespace lft::data
