// The micro-batches of a run as numbers, and the one with the highest memory use.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "src/data/lengths.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// One micro-batch and its step. No samples if no
/// sample of the run is both good and supervised.
struct MicroBatchShape {
  std::vector<data::SampleLength> samples;  // without bad ones
  std::vector<int64_t> indices;             // of the dataset
  int64_t step = 0;                         // from 1
  int64_t in_step = 0;                      // micro-batches of the run's longest step; 0: unknown
  bool packed = false;                      // no padding
  double reading = 0;  // limit in bytes of images being read by threads: data::ReadingBudget
  int64_t rows() const { return sum(&data::SampleLength::sides); }  // a pair has two
  int64_t longest() const;
  int64_t positions() const;  // including padding
  int64_t attended() const;   // the same with the positions that both sides of a pair share
  int64_t images() const { return sum(&data::SampleLength::images); }
  int64_t supervised() const { return sum(&data::SampleLength::supervised); }
  template <class Number>
  int64_t sum(Number data::SampleLength::*member) const {
    int64_t sum = 0;
    for (const data::SampleLength& sample : samples) sum += sample.*member;
    return sum;
  }
};
/// Selects the micro-batch with the highest memory use; the first of equals.
class LargestMicroBatch {
 public:
  explicit LargestMicroBatch(const RunSettings& settings);
  void consider(MicroBatchShape batch);
  /// No samples if none of the micro-batches is supervised.
  const MicroBatchShape& largest() const { return largest_; }

 private:
  /// Bytes of a pass, and per position (including padding), per vision tower position and per
  /// supervised token, near a pass with this many images. The peak is the largest of several
  /// moments, of which each is linear except for the LM head's last chunk: no tangent is above it.
  struct Tangent {
    double constant = 0, token = 0, tower = 0, supervised = 0;
  };
  static Tangent tangent(const RunSettings& settings, int64_t images);

  std::array<Tangent, 2> tangents_;  // without images, where the decoder decides, and with images
  MicroBatchShape largest_;
  double most_ = -std::numeric_limits<double>::infinity();
};

/// The micro-batch of the whole run (all epochs, in order) with the highest memory use; the first
/// of equals. `lengths`: measure_lengths() of the training rows.
MicroBatchShape worst_micro_batch(const RunSettings& settings,
                                  const std::vector<data::SampleLength>& lengths);

}  // namespace lft::train
