// The rows of a run: opened, and what was measured of them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/data/lengths.h"
#include "src/data/loader.h"
#include "src/text/tokenizer.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

struct RunData {
  std::unique_ptr<text::Tokenizer> tokenizer;
  data::EncodeOptions encode;
  std::unique_ptr<data::Dataset> train, eval;  // eval may be null
  int64_t workers = 4;
  std::vector<data::SampleLength>
      lengths;           // of the rows to train on, once sample_lengths() has measured them
  data::BadSamples bad;  // among them
  /// Once data_hash(), image_stamp() and image_digest() have looked: never twice in a run.
  std::optional<std::string> data_hash, image_stamp, image_digest;
};
/// Opens data.train and data.eval, checks the recipe's limits against the model's. A remark becomes
/// a notice.
RunData open_run_data(const recipe::Recipe& recipe, const family::ModelConfig& config,
                      std::unique_ptr<text::Tokenizer> tokenizer,
                      std::vector<std::string>* notices);

/// Saves the measured properties of the rows below <output_dir>/index/ for the next start of this
/// run. A failure is only a warning.
void keep_indexes(const RunData& data, const recipe::Recipe& recipe);

/// data.lengths, measured by the first call; open_run_data() makes it for data.group_by_length
/// alone.
const std::vector<data::SampleLength>& sample_lengths(RunData& data);

/// Of the rows to train on: their Dataset::hash().
const std::string& data_hash(RunData& data);

/// Of the sizes and times of all images to train on, without reading them; looked up by the first
/// call. Empty where no row names any.
const std::string& image_stamp(RunData& data);

/// Of the content of all images to train on, where they are few (10,000, 256 MiB), else of their
/// sizes, as of what is outside the image root; looked up by the first call. Empty where no row
/// names any.
const std::string& image_digest(RunData& data);

/// How many rows of each source of data.train an epoch takes. Empty of one path. kUsage where a
/// weight makes more rows than an epoch may have.
std::vector<data::SourceShare> source_shares(const recipe::Recipe& recipe,
                                             const data::Dataset& train);

/// `lengths` are looked at under data.group_by_length, and cut packed micro-batches where they are
/// measured.
data::LoaderOptions loader_options(const RunSettings& settings,
                                   const std::vector<data::SampleLength>& lengths);
}  // namespace lft::train
