// The opened rows of a run and their measurements.
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

/// Dataset::hash() of data.eval, and the digest of its images as image_digest(); both are empty
/// without data.eval.
struct HeldOutIdentity {
  std::string rows, images;
};

struct RunData {
  std::unique_ptr<text::Tokenizer> tokenizer;
  data::EncodeOptions encode;
  std::unique_ptr<data::Dataset> train, eval;  // eval may be null
  int64_t workers = 4;
  std::vector<data::SampleLength> lengths;  // of the training rows, after sample_lengths()
  data::BadSamples bad;                     // bad rows among them
  /// Set by data_hash(), image_stamp(), image_digest() and held_out_identity(); computed at most
  /// once in a run.
  std::optional<std::string> data_hash, image_stamp, image_digest;
  std::optional<HeldOutIdentity> held_out;
};
/// Opens data.train and data.eval and checks the recipe's limits against the model's. A remark
/// becomes a notice.
RunData open_run_data(const recipe::Recipe& recipe, const family::ModelConfig& config,
                      std::unique_ptr<text::Tokenizer> tokenizer,
                      std::vector<std::string>* notices);

/// Saves the measured properties of the rows below <output_dir>/index/ for the next start of this
/// run. A failure is only a warning.
void keep_indexes(const RunData& data, const recipe::Recipe& recipe);

/// data.lengths, measured on the first call; open_run_data() measures it for data.group_by_length
/// only.
const std::vector<data::SampleLength>& sample_lengths(RunData& data);

/// Dataset::hash() of the training rows.
const std::string& data_hash(RunData& data);

/// A hash of the sizes and times of all training images, without reading them; computed on the
/// first call. Empty if no row has an image.
const std::string& image_stamp(RunData& data);

/// A hash of the content of all training images if they are few (10,000, 256 MiB), else of their
/// sizes; also of the sizes for files outside the image root. Computed on the first call. Empty if
/// no row has an image.
const std::string& image_digest(RunData& data);

const HeldOutIdentity& held_out_identity(RunData& data);

/// The number of rows of each source of data.train in an epoch. Empty for a single path. kUsage if
/// a weight exceeds the limit of rows in an epoch.
std::vector<data::SourceShare> source_shares(const recipe::Recipe& recipe,
                                             const data::Dataset& train);

/// rows_of_step() as in a run: data.train is opened if train.grad_accum: auto depends on its rows.
/// A notice reports that it cannot be read.
int64_t settled_rows_of_step(const recipe::Recipe& recipe);

/// `lengths` are used for data.group_by_length, and
/// for packing micro-batches if they are measured.
data::LoaderOptions loader_options(const RunSettings& settings,
                                   const std::vector<data::SampleLength>& lengths);
}  // namespace lft::train
