// The directory that `lft prepare` writes and `train` reads through pread, without a decoder:
// index.json, shards of samples, shards of images.
//
// Version 2. A shard is a safetensors file of two tensors: `records`, int64 [n + 1, numbers], and
// `data`, uint8. A record begins with the offset of its bytes in `data` and their digest. Samples
// are packed by store/stored_sample.h together with their rows; their records contain their
// lengths. Images are packed by store/packed_pixels.h, each distinct image once. Opening reads
// index.json and the headers of the shards. The records of a shard are compared with index.json at
// their first use, and the bytes of a sample or an image with their record at every read.
#pragma once
#include <memory>
#include <string>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/data/store/data_changed.h"
#include "src/io/json.h"

namespace lft::data {

/// Throws kInput if the directory is not one that lft prepared, is damaged, or was made with other
/// options (each difference is named).
std::unique_ptr<Dataset> open_prepared(const std::string& path, const EncodeOptions& options);

constexpr int64_t kPreparedVersion = 3;
constexpr uint64_t kMostIndexBytes = 64u << 20;
/// The numbers in the record of a sample: offset, digest, tokens, supervised, images, values,
/// tower, placed, shared.
constexpr int64_t kSampleNumbers = 9;
/// The numbers in the record of an image: offset, digest, shape_numbers().
constexpr int64_t kImageNumbers = 11;
inline constexpr char kSpecialTokensRule[] = "special_tokens_in_text";  // key in sample_rules()
inline constexpr char kPairsRule[] = "pairs";                           // only if rows are pairs
inline constexpr char kLabelledRule[] = "labelled";                     // only if rows have one
inline constexpr char kAlphaRule[] = "alpha";                           // only if alpha is not drop

/// Everything that determines a sample except its row and images.
io::Json sample_rules(const EncodeOptions& options);

bool is_prepared(const std::string& path);
/// "shard-00000.safetensors".
std::string shard_name(const std::string& kind, size_t number);

}  // namespace lft::data
