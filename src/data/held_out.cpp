#include "src/data/held_out.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/data/loader.h"
#include "src/data/rows/row_reader.h"

namespace lft::data {
namespace {

constexpr uint64_t kSplitStream =
    0x68656c646f757421ull;  // separates this random stream from that of the training order

/// Rows of one group have the same root.
class RowGroups {
 public:
  explicit RowGroups(const Dataset& dataset) : parent_(static_cast<size_t>(dataset.size())) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    for (size_t i = 0; i < parent_.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const uint64_t hash = dataset.row_hash(row);
      if (hash == 0) continue;  // the row cannot be read
      const std::vector<uint64_t> images = dataset.image_keys(row);
      if (images.empty()) join(content_first_, hash, i);  // else equal rows share their images
      for (const uint64_t image : images) join(image_first_, image, i);
    }
  }

  /// Groups in the order of their first rows.
  std::vector<std::vector<int64_t>> groups() {
    std::vector<std::vector<int64_t>> groups;
    std::unordered_map<size_t, size_t> number;  // group number by root
    for (size_t i = 0; i < parent_.size(); ++i) {
      const auto [at, fresh] = number.emplace(root(i), groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(static_cast<int64_t>(i));
    }
    return groups;
  }

 private:
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  using First = std::unordered_map<uint64_t, size_t>;  // first row with this hash

  void join(First& rows, uint64_t key, size_t row) {
    const auto [first, fresh] = rows.emplace(key, row);
    if (!fresh) parent_[root(row)] = root(first->second);
  }

  std::vector<size_t> parent_;
  First content_first_, image_first_;
};

class RowSelection : public Dataset {
 public:
  RowSelection(std::shared_ptr<const Dataset> whole, std::vector<int64_t> rows)
      : whole_(std::move(whole)), rows_(std::move(rows)) {
    if (whole_->references().empty()) return;
    std::vector<double> references;
    const auto each = std::ssize(whole_->references()) / whole_->size();
    for (const int64_t row : rows_) {
      const auto* const first = whole_->references().data() + each * row;
      references.insert(references.end(), first, first + each);
    }
    set_references(std::move(references));
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Sample get(int64_t index) const override { return whole_->get(at(index)); }
  SampleLength length(int64_t index) const override { return whole_->length(at(index)); }
  std::string id(int64_t index) const override { return whole_->id(at(index)); }
  std::vector<std::string> image_paths(int64_t index) const override {
    return whole_->image_paths(at(index));
  }
  Row row(int64_t index) const override { return whole_->row(at(index)); }
  void measure(int64_t workers) const override { whole_->measure(workers); }
  int64_t images_of(int64_t index) const override { return whole_->images_of(at(index)); }
  uint64_t row_hash(int64_t index) const override { return whole_->row_hash(at(index)); }
  std::vector<int32_t> image_numbers(int64_t index) const override {
    return whole_->image_numbers(at(index));
  }
  std::vector<uint64_t> image_keys(int64_t index) const override {
    return whole_->image_keys(at(index));
  }
  int64_t image_names() const override { return whole_->image_names(); }
  std::string image_name(int64_t number) const override { return whole_->image_name(number); }
  std::string image_root(int64_t number) const override { return whole_->image_root(number); }
  const std::vector<ImageFile>& image_files() const override { return whole_->image_files(); }
  io::FileBytes image_bytes(int64_t index, size_t image) const override {
    return whole_->image_bytes(at(index), image);
  }
  int32_t source(int64_t index) const override { return whole_->source(at(index)); }
  void keep_index(const std::string& stem) const override { whole_->keep_index(stem); }
  std::string hash() const override {
    Sha256 hash;
    hash.update(whole_->hash());
    for (const int64_t row : rows_) hash.update(" " + std::to_string(row));
    return hash.hex();
  }

 private:
  int64_t at(int64_t index) const { return rows_.at(static_cast<size_t>(index)); }

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> rows_;
};

}  // namespace

std::vector<int64_t> held_out_rows(const Dataset& dataset, double share, uint64_t seed) {
  const std::vector<std::vector<int64_t>> groups = RowGroups(dataset).groups();
  const auto size = static_cast<double>(dataset.size());
  const auto wanted = std::max<int64_t>(std::llround(share * size), 1);
  std::vector<int64_t> rows;
  for (const int64_t number : epoch_order(static_cast<int64_t>(groups.size()), seed ^ kSplitStream,
                                          /*epoch=*/0, /*shuffle=*/true)) {
    const std::vector<int64_t>& group = groups[static_cast<size_t>(number)];
    if (rows.size() + group.size() <= static_cast<size_t>(wanted))
      rows.insert(rows.end(), group.begin(), group.end());
  }
  if (rows.empty() || static_cast<int64_t>(rows.size()) >= dataset.size()) {
    const auto largest = std::ranges::max(groups, {}, &std::vector<int64_t>::size).size();
    refuse(ErrorKind::kInput, "no part of the rows can be held out", "data.eval_share",
           std::to_string(wanted) + " of " + std::to_string(dataset.size()) +
               " rows wanted; up to " + std::to_string(largest) + " share images or say the same",
           "at least one row in each split, and no image in both",
           "change data.eval_share, or name a file of held-out rows in data.eval");
  }
  std::ranges::sort(rows);
  return rows;
}

std::unique_ptr<Dataset> select_rows(std::shared_ptr<const Dataset> whole,
                                     std::vector<int64_t> rows) {
  return std::make_unique<RowSelection>(std::move(whole), std::move(rows));
}

std::unique_ptr<Dataset> select_rows(const Dataset& whole, std::vector<int64_t> rows) {
  const std::shared_ptr<const Dataset> borrowed(std::shared_ptr<const Dataset>(), &whole);
  return select_rows(borrowed, std::move(rows));
}

HeldOut hold_out(std::shared_ptr<const Dataset> whole, double share, uint64_t seed) {
  std::vector<int64_t> eval = held_out_rows(*whole, share, seed), all, train;
  all.resize(static_cast<size_t>(whole->size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  std::ranges::set_difference(all, eval, std::back_inserter(train));
  return {.train = select_rows(whole, std::move(train)),
          .eval = select_rows(whole, std::move(eval))};
}

std::string row_list(const Dataset& dataset) {
  std::string lines;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Row row = dataset.row(i);
    lines += io::Json{{"id", row.id}, {"where", row.where}}.dump() + "\n";
  }
  return lines;
}

}  // namespace lft::data
