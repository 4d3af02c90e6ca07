#include "src/data/dataset_joined.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "src/base/hash.h"

namespace lft::data {
namespace {

class JoinedDataset : public Dataset {
 public:
  JoinedDataset(std::vector<std::unique_ptr<Dataset>> parts, bool as_sources)
      : parts_(std::move(parts)), as_sources_(as_sources) {
    for (const auto& part : parts_) {
      row_begin_.push_back(row_begin_.back() + part->size());
      image_begin_.push_back(image_begin_.back() + part->image_names());
    }
  }

  int64_t size() const override { return row_begin_.back(); }
  Sample get(int64_t index) const override {
    const Place at = row_at(index);
    Sample sample = at.part->get(at.number);
    sample.source = source(index);
    return sample;
  }
  SampleLength length(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->length(at.number);
  }
  void measure(int64_t workers) const override {
    for (const auto& part : parts_) part->measure(workers);
  }
  std::string id(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->id(at.number);
  }
  std::vector<std::string> image_paths(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->image_paths(at.number);
  }
  Row row(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->row(at.number);
  }
  std::string hash() const override {
    Sha256 hash;
    for (const auto& part : parts_) hash.update(part->hash() + "\n");
    return hash.hex();
  }
  int64_t images_of(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->images_of(at.number);
  }
  bool any_image() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->any_image(); });
  }
  uint64_t row_hash(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->row_hash(at.number);
  }
  std::vector<int32_t> image_numbers(int64_t index) const override {
    const Place at = row_at(index);
    std::vector<int32_t> numbers = at.part->image_numbers(at.number);
    for (int32_t& number : numbers) number += static_cast<int32_t>(image_begin_[at.which]);
    return numbers;
  }
  std::vector<uint64_t> image_keys(int64_t index) const override {
    const Place at = row_at(index);
    return at.part->image_keys(at.number);
  }
  int64_t image_names() const override { return image_begin_.back(); }
  std::string image_name(int64_t number) const override {
    const Place at = place(image_begin_, number);
    return at.part->image_name(at.number);
  }
  std::string image_root(int64_t number) const override {
    const Place at = place(image_begin_, number);
    return at.part->image_root(at.number);
  }
  const std::vector<ImageFile>& image_files() const override {
    std::call_once(looked_, [this] {
      for (const auto& part : parts_) {
        const std::vector<ImageFile>& files = part->image_files();
        image_files_.insert(image_files_.end(), files.begin(), files.end());
      }
    });
    return image_files_;
  }
  io::FileBytes image_bytes(int64_t index, size_t image) const override {
    const Place at = row_at(index);
    return at.part->image_bytes(at.number, image);
  }
  int32_t source(int64_t index) const override {
    return as_sources_ ? static_cast<int32_t>(row_at(index).which) : 0;
  }
  void keep_index(const std::string& stem) const override {
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i]->keep_index(part_stem(stem, i));
  }

 private:
  struct Place {
    const Dataset* part;
    size_t which;
    int64_t number;  // within its part
  };
  Place place(const std::vector<int64_t>& begins, int64_t number) const {
    if (number < 0 || number >= begins.back())
      throw std::out_of_range("row " + std::to_string(number));
    const auto after = std::ranges::upper_bound(begins, number);
    const auto which = static_cast<size_t>(after - begins.begin() - 1);
    return {parts_[which].get(), which, number - begins[which]};
  }
  Place row_at(int64_t index) const { return place(row_begin_, index); }

  std::vector<std::unique_ptr<Dataset>> parts_;
  bool as_sources_;
  std::vector<int64_t> row_begin_ = {0}, image_begin_ = {0};
  mutable std::once_flag looked_;
  mutable std::vector<ImageFile> image_files_;
};

}  // namespace

std::unique_ptr<Dataset> join_datasets(std::vector<std::unique_ptr<Dataset>> parts,
                                       bool as_sources) {
  return std::make_unique<JoinedDataset>(std::move(parts), as_sources);
}

std::string part_stem(const std::string& stem, size_t i) { return stem + "-" + std::to_string(i); }

}  // namespace lft::data
