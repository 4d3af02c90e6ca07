// Writes the directory that prepared.h describes: samples and images are streamed into shards,
// index.json is written last.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"

namespace lft::data {

constexpr int64_t kPreparedShardBytes = 512ll << 20;
/// Writes tokenised, decoded samples. kInput for the first bad sample; with options.skip_bad its
/// position and reason are stored, so that order and skips are those of the original rows, and it
/// is named in a line; kInput if more than options.max_bad are bad, or all. `poll` is called every
/// few samples. An exception leaves no output. Returns the number of bad samples.
int64_t prepare_dataset(const Dataset& dataset, const EncodeOptions& options,
                        const std::string& out, int64_t shard_bytes = kPreparedShardBytes,
                        const std::function<void()>& poll = nullptr);

}  // namespace lft::data
