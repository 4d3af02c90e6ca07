// How long every sample of a dataset is, without decoding a pixel.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/dataset.h"

namespace lft::data {

/// The samples that cannot be read, as far as measuring looks at them.
struct BadSamples {
  int64_t count = 0, first = -1;  // first: dataset index
  std::optional<Error> error;     // of the first
};

/// Of a sample that is there: `cut` and `reading` are not known, 0.
SampleLength sample_length(const Sample& sample);

/// By dataset index, on `workers` threads (at least one). A bad sample measures 0 tokens:
/// data.on_bad_sample says what becomes of it.
std::vector<SampleLength> measure_lengths(const Dataset& dataset, int64_t workers,
                                          BadSamples* bad = nullptr);

}  // namespace lft::data
