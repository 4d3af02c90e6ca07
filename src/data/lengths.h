// The lengths of the samples of a data set, without decoding a pixel.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"

namespace lft::data {

/// The samples that cannot be read, as far as measuring detects them.
struct BadSamples {
  int64_t count = 0, first = -1;  // first: dataset index
  std::optional<Error> error;     // error of the first one
};

/// kInput if the count exceeds options.max_bad; `rows` names the data, `first` the first bad
/// sample.
void check_bad_count(const EncodeOptions& options, int64_t bad, const std::string& rows,
                     const std::string& first);

/// The length of the sample that encode_row() would return; images are opened, not decoded.
SampleLength row_length(const Row& row, const std::string& image_root,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options);
/// The length of a sample; `cut` and `reading` are unknown and 0.
SampleLength sample_length(const Sample& sample);

/// Lengths by dataset index, measured on `workers` threads (at least one). A bad sample has 0
/// tokens; data.on_bad_sample decides its treatment.
std::vector<SampleLength> measure_lengths(const Dataset& dataset, int64_t workers,
                                          BadSamples* bad = nullptr);

}  // namespace lft::data
