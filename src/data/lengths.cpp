#include "src/data/lengths.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/common/error.h"
#include "src/data/encode.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

SampleLength length_of(const Sample& sample, size_t images) {
  return {.tokens = static_cast<int32_t>(sample.input_ids.size()),
          .supervised = static_cast<int32_t>(sample.supervised()),
          .images = static_cast<int32_t>(images)};
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
  const io::ImageLimits& limits = options.image_limits;
  const std::string root = image_root.empty() ? "." : image_root;
  const std::vector<family::ImagePlan> images = plan_images(row, root, options);
  Sample sample = expand_images(encode_text(row, images, tokenizer, options), row, images, options);
  const int64_t whole = sample.supervised();
  truncate_sample(sample, row, images, options);
  SampleLength length = length_of(sample, row.images.size());
  const family::ImageProcessor& processor = options.images->of_row(row.images.size());
  for (const std::string& name : row.images) {
    try {
      uint64_t file_bytes = 0;
      const io::ImageHeader header =
          read_header_of(io::image_path(root, name, limits.follow_symlinks), limits, &file_bytes);
      const family::ImagePlan plan = processor.plan(upright_size(header));
      length.add_image(plan);
      length.reading =
          std::max(length.reading, read_bytes(header, static_cast<int64_t>(file_bytes), processor));
    } catch (const Error& error) {
      throw_image_error(row, error, kMendImage);
    }
  }
  length.cut = static_cast<int32_t>(whole) - length.supervised;
  return length;
}

SampleLength sample_length(const Sample& sample) {
  SampleLength length = length_of(sample, sample.images.size());
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
  std::vector<SampleLength> lengths(static_cast<size_t>(dataset.size()));
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  BadCount bad_count;
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    next = dataset.size();
  };
  const auto work = [&] {
    try {
      for (int64_t i; (i = next++) < dataset.size();)
        lengths[static_cast<size_t>(i)] = length_or_bad(dataset, i, bad_count);
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < std::min(workers, dataset.size()); ++i) threads.emplace_back(work);
  } catch (...) {
    fail();  // no memory for a thread: those that run are still to be joined
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  if (bad != nullptr) *bad = bad_count.take();
  return lengths;
}

}  // namespace lft::data
