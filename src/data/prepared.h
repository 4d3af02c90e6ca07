// The directory that `lft prepare` writes and `train` reads through pread, without a decoder:
// index.json, shards of samples, shards of images.
//
// Version 2. A shard is a safetensors file of two tensors: `records`, int64 [n + 1, numbers], where
// a record begins with where its bytes stand in `data` and their digest, and `data`, uint8. Samples
// are as store/stored_sample.h packs them, with their rows, and their records have their lengths;
// images, each once whoever shows it, as store/packed_pixels.h packs them. Opening reads index.json
// and the shards' headers; a shard's records are compared with index.json when the first of them is
// asked for, a sample's or an image's bytes with its record whenever they are read.
#pragma once
#include <memory>
#include <string>

#include "src/data/dataset.h"
#include "src/data/store/data_changed.h"

namespace lft::data {

/// Throws kInput where the directory is not one that lft prepared, is damaged, or was made for
/// other options (each difference named).
std::unique_ptr<Dataset> open_prepared(const std::string& path, const EncodeOptions& options);

constexpr int64_t kPreparedVersion = 2;
constexpr uint64_t kMostIndexBytes = 64u << 20;
/// Numbers of a sample's record: offset, digest, tokens, supervised, images, values, tower, placed.
constexpr int64_t kSampleNumbers = 8;
/// Of an image's: offset, digest, shape_numbers().
constexpr int64_t kImageNumbers = 11;
inline constexpr char kSpecialTokensRule[] = "special_tokens_in_text";  // of sample_rules()
inline constexpr char kAlphaRule[] = "alpha";                           // where it is not drop

bool is_prepared(const std::string& path);
/// "shard-00000.safetensors".
std::string shard_name(const std::string& kind, size_t number);

}  // namespace lft::data
