#include "src/data/lengths.h"

#include <algorithm>
#include <mutex>

#include "kernels/common/error.h"
#include "src/base/parallel.h"
#include "src/base/phase.h"
#include "src/data/encode.h"
#include "src/data/encoded_image.h"
#include "src/data/same_images.h"
#include "src/data/shared_prompt.h"
#include "src/data/store/data_changed.h"
#include "src/io/decode/image_decode.h"

namespace lft::data {
namespace {

/// Plans each image of a row from its header; `length` receives their cost.
std::vector<family::ImagePlan> measure_images(const Row& row, const std::string& root,
                                              const EncodeOptions& options, SampleLength& length) {
  std::vector<family::ImagePlan> plans;
  for_each_image(row, root, options, kFixImage, [&](const EncodedImage& image) {
    plans.push_back(image.plan());
    length.add_image(image.plan());
    length.reading = std::max(length.reading, image.fit_bytes());
    io::load_decoder(image.header());
  });
  return plans;
}

/// Counts the bad samples of all workers and keeps the error with the lowest index.
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

/// A row, or a side of a pair, without pixels.
struct Measured {
  Sample sample;
  SampleLength length;
};

Measured measure_side(const Row& row, const std::string& image_root,
                      const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  check_marks(row);
  const std::string root = image_root.empty() ? "." : image_root;
  const bool fixed = options.images->fixed_shape().has_value();
  SampleLength of_images;
  const std::vector<family::ImagePlan> images =
      fixed ? fixed_plans(row.images.size(), options)
            : measure_images(row, root, options, of_images);  // the text depends on the plans
  Sample sample = expand_images(encode_text(row, images, tokenizer, options), row, images, options);
  const int64_t whole = sample.supervised();
  truncate_sample(sample, row, images, options);
  if (fixed) measure_images(row, root, options, of_images);
  SampleLength length = of_images;
  length.tokens = length.longest = static_cast<int32_t>(sample.input_ids.size());
  length.supervised = static_cast<int32_t>(sample.supervised());
  length.images = static_cast<int32_t>(row.images.size());
  length.cut = static_cast<int32_t>(whole) - length.supervised;
  return {std::move(sample), length};
}

}  // namespace

void check_bad_count(const EncodeOptions& options, int64_t bad, const std::string& rows,
                     const std::string& first) {
  if (bad <= options.max_bad) return;
  refuse(ErrorKind::kInput, "too many samples are bad to be skipped", rows,
         std::to_string(bad) + ", first " + first,
         "at most data.max_bad = " + std::to_string(options.max_bad),
         "fix them (lft validate lists them all), or raise data.max_bad");
}

SampleLength row_length(const Row& row, const std::string& image_root,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  Measured chosen = measure_side(row, image_root, tokenizer, options);
  if (!row.rejected) return chosen.length;
  Measured rejected = measure_side(*row.rejected, image_root, tokenizer, options);
  if (row.rejected->images == row.images) {
    rejected.length.share_images();
    rejected.length.shared =
        static_cast<int32_t>(shared_prompt(chosen.sample, rejected.sample, options.config));
  }
  chosen.length.add_side(rejected.length);
  return chosen.length;
}

SampleLength sample_length(const Sample& sample) {
  const auto tokens = static_cast<int32_t>(sample.input_ids.size());
  SampleLength length{.tokens = tokens,
                      .supervised = static_cast<int32_t>(sample.supervised()),
                      .images = static_cast<int32_t>(sample.images.size()),
                      .longest = tokens,
                      .shared = static_cast<int32_t>(sample.shared)};
  for (const PixelImage& image : sample.images) {
    length.values += image.shape.values();
    length.tower += image.tower_positions;
    length.placed += image.positions;
  }
  for (const Sample& rejected : sample.rejected) {
    SampleLength other = sample_length(rejected);
    if (same_images(rejected, sample)) other.share_images();
    length.add_side(other);
  }
  return length;
}

std::vector<SampleLength> measure_lengths(const Dataset& dataset, int64_t workers,
                                          BadSamples* bad) {
  dataset.measure(workers);
  std::vector<SampleLength> lengths(static_cast<size_t>(dataset.size()));
  BadCount bad_count;
  Phase phase("counting tokens", dataset.size(), "after the token count");
  parallel_for(dataset.size(), workers, [&](int64_t i) {
    phase.add();
    lengths[static_cast<size_t>(i)] = length_or_bad(dataset, i, bad_count);
  });
  if (bad != nullptr) *bad = bad_count.take();
  return lengths;
}

}  // namespace lft::data
