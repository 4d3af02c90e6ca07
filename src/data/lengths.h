// How long every sample of a dataset is, without decoding a pixel.
#pragma once
#include <cstdint>
#include <vector>

#include "src/data/dataset.h"

namespace lft {

/// By dataset index, on `workers` threads (at least one). A bad sample measures 0 tokens: data.on_bad_sample says what becomes of it.
std::vector<SampleLength> measure_lengths(const Dataset& dataset, int64_t workers);

}  // namespace lft
