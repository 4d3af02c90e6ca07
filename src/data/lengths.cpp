#include "src/data/lengths.h"

#include <algorithm>
#include <mutex>

#include "kernels/common/error.h"
#include "src/base/parallel.h"
#include "src/data/encode.h"
#include "src/data/rows/row_images.h"
#include "src/data/store/data_changed.h"

namespace lft::data {
namespace {

/// What each image of a row becomes, by its header; `length` has what they cost.
std::vector<family::ImagePlan> look_at_images(const Row& row, const std::string& root,
                                              const EncodeOptions& options, SampleLength& length) {
  const io::ImageLimits& limits = options.image_limits;
  const family::ImageProcessor& processor = options.images->of_row(row.images.size());
  std::vector<family::ImagePlan> plans;
  for (const std::string& name : row.images) {
    try {
      const io::FileHandle file = open_row_image(row, name, root, limits.follow_symlinks);
      const io::ImageHeader header = read_header_of(file, limits);
      plans.push_back(processor.plan(upright_size(header)));
      length.add_image(plans.back());
      length.reading = std::max(length.reading,
                                read_bytes(header, static_cast<int64_t>(file.size()), processor));
    } catch (const Error& error) {
      throw_image_error(row, error, kMendImage);
    }
  }
  return plans;
}

/// Of all workers: whichever comes first, the error kept is that of the first sample.
class BadCount {
 public:
  void add(int64_t index, const Error& error) {
    const std::lock_guard lock(mutex_);
    ++bad_.count;
    if (bad_.error && bad_.first < index) return;
    bad_.first = index;
    bad_.error = error;
  }
  BadSamples take() { return std::move(bad_); }

 private:
  std::mutex mutex_;
  BadSamples bad_;
};

SampleLength length_or_bad(const Dataset& dataset, int64_t index, BadCount& bad) {
  try {
    return dataset.length(index);
  } catch (const DataChanged&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    bad.add(index, error);
    return {};
  }
}

}  // namespace

SampleLength row_length(const Row& row, const std::string& image_root,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  check_marks(row);
  const std::string root = image_root.empty() ? "." : image_root;
  const bool fixed = options.images->fixed_shape().has_value();
  SampleLength of_images;
  std::vector<family::ImagePlan> plans;
  const auto look = [&] { plans = look_at_images(row, root, options, of_images); };
  if (!fixed) look();  // what the text becomes depends on them
  const std::vector<family::ImagePlan> images = fixed ? plan_images(row, root, options) : plans;
  Sample sample = expand_images(encode_text(row, images, tokenizer, options), row, images, options);
  const int64_t whole = sample.supervised();
  truncate_sample(sample, row, images, options);
  if (fixed) look();
  SampleLength length = of_images;
  length.tokens = static_cast<int32_t>(sample.input_ids.size());
  length.supervised = static_cast<int32_t>(sample.supervised());
  length.images = static_cast<int32_t>(row.images.size());
  length.cut = static_cast<int32_t>(whole) - length.supervised;
  return length;
}

SampleLength sample_length(const Sample& sample) {
  SampleLength length{.tokens = static_cast<int32_t>(sample.input_ids.size()),
                      .supervised = static_cast<int32_t>(sample.supervised()),
                      .images = static_cast<int32_t>(sample.images.size())};
  for (const PixelImage& image : sample.images) {
    length.values += image.shape.values();
    length.tower += image.tower_positions;
    length.placed += image.positions;
  }
  return length;
}

SampleLength Dataset::length(int64_t index) const { return sample_length(get(index)); }

std::vector<SampleLength> measure_lengths(const Dataset& dataset, int64_t workers,
                                          BadSamples* bad) {
  dataset.measure(workers);
  std::vector<SampleLength> lengths(static_cast<size_t>(dataset.size()));
  BadCount bad_count;
  parallel_for(dataset.size(), workers, [&](int64_t i) {
    lengths[static_cast<size_t>(i)] = length_or_bad(dataset, i, bad_count);
  });
  if (bad != nullptr) *bad = bad_count.take();
  return lengths;
}

}  // namespace lft::data
