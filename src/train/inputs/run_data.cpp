#include "src/train/inputs/run_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/data/held_out.h"
#include "src/data/rows/row_reader.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/inputs/run_objective.h"

namespace lft::train {
namespace {

constexpr size_t kMostImagesRead = 10'000;
constexpr int64_t kMostImageBytesRead = 256 << 20;

/// Calls look(file, path) for each image of each training row, in order; missing files are handled
/// by the loader.
template <typename Look>
void each_image(const data::Dataset& dataset, const Look& look) {
  const std::vector<data::ImageFile>& files = dataset.image_files();
  if (files.empty()) return;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const int32_t number : dataset.image_numbers(i)) {
      const data::ImageFile& file = files[static_cast<size_t>(number)];
      if (file.bytes >= 0) look(file, number);
    }
  }
}

/// Hashes a readable image within the image root with a megabyte of memory, independent of its
/// size.
void hash_content(Sha256& hash, const std::string& root, const std::string& name) {
  const std::string path = name.starts_with('/') ? name : root + "/" + name;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (!io::is_inside(path, root) || access(path.c_str(), R_OK) != 0) return;
  const io::FileHandle file = io::FileHandle::open_to_read(path);
  std::string piece(1 << 20, '\0');
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), file.size() - at));
    file.read_at(at, piece.data(), piece.size());
    hash.update(piece);
  }
}

/// kInput if no pair prefers anything.
void require_a_preference(const data::Dataset& rows, const recipe::Recipe& recipe) {
  for (int64_t i = 0; i < rows.size(); ++i) {
    data::Row chosen = rows.row(i);
    const std::shared_ptr<const data::Row> rejected = std::exchange(chosen.rejected, nullptr);
    if (!rejected || data::row_content(*rejected) != data::row_content(chosen)) return;
  }
  refuse(ErrorKind::kInput, "pairs whose two answers are all equal", recipe.data.train.text(),
         std::to_string(rows.size()) + " pairs, all with equal answers",
         "pairs of a chosen and a rejected answer", "lft validate names the rows");
}

/// A warning if all rows have the same label; empty otherwise.
std::string judge_labels(const data::Dataset& rows, const recipe::Recipe& recipe) {
  bool seen[2] = {};
  for (int64_t i = 0; i < rows.size() && !(seen[0] && seen[1]); ++i)
    if (const std::optional<bool> label = rows.row(i).desirable) seen[*label ? 1 : 0] = true;
  if (seen[0] == seen[1]) return "";
  return "all rows of " + recipe.data.train.text() + " are labelled " +
         (seen[1] ? "desirable" : "undesirable") +
         ": kto learns from the difference, so add rows with the other label";
}

/// As image_digest().
std::string digest_of_images(const data::Dataset& rows) {
  int64_t bytes = 0;
  size_t count = 0;
  each_image(rows, [&](const data::ImageFile& file, int32_t) {
    bytes += file.bytes;
    ++count;
  });
  const bool few = count <= kMostImagesRead && bytes <= kMostImageBytesRead;
  Sha256 hash;
  each_image(rows, [&](const data::ImageFile& file, int32_t number) {
    hash.update(std::to_string(file.bytes) + "\n");
    const std::string root = rows.image_root(number);
    if (few) hash_content(hash, root.empty() ? "." : root, rows.image_name(number));
  });
  return count == 0 ? "" : hash.hex().substr(0, 16);
}

}  // namespace

RunData open_run_data(const recipe::Recipe& recipe, const family::ModelConfig& config,
                      std::unique_ptr<text::Tokenizer> tokenizer,
                      std::vector<std::string>* notices) {
  RunData run;
  run.tokenizer = std::move(tokenizer);
  run.workers = recipe.data.workers;
  std::string notice;
  run.encode = data::encode_options(recipe.model.path, config, *run.tokenizer, encode_rules(recipe),
                                    &notice);
  if (!notice.empty()) notices->push_back(notice);
  apply_data_rules(recipe, run.encode);
  run.encode.reading = std::make_shared<data::ReadingBudget>();
  const int64_t budget = recipe.train.max_tokens_per_step;
  const int64_t longest = run.encode.max_tokens * (run.encode.pairs ? 2 : 1);
  if (budget > 0 && budget < longest) {
    refuse(ErrorKind::kUsage,
           std::string("train.max_tokens_per_step is below the longest ") +
               (run.encode.pairs ? "pair" : "sample") + " that data.max_tokens lets through",
           "train.max_tokens_per_step", std::to_string(budget),
           "at least " + std::to_string(longest), "raise it, or lower data.max_tokens");
  }
  const std::string kept = recipe.output_dir + "/index/";
  const bool lengths = recipe.train.worst_first || recipe.data.group_by_length;
  const data::IndexUse of_train{.kept = {kept + "train"}, .lengths = lengths};
  run.train = open_train(recipe, *run.tokenizer, run.encode, of_train);
  if (recipe.data.eval_share > 0) {
    const int64_t rows = run.train->size();
    data::HeldOut parts = data::hold_out(std::move(run.train), recipe.data.eval_share,
                                         static_cast<uint64_t>(recipe.train.seed));
    run.train = std::move(parts.train);
    run.eval = std::move(parts.eval);
    notices->push_back("data.eval_share: " + std::to_string(run.eval->size()) + " of " +
                       std::to_string(rows) + " rows are held out");
  }
  if (run.train->size() == 0)
    refuse(ErrorKind::kInput, "no row to train on", recipe.data.train.text());
  if (run.encode.pairs) require_a_preference(*run.train, recipe);
  if (run.encode.labelled)
    if (const std::string line = judge_labels(*run.train, recipe); !line.empty()) warning(line);
  if (!recipe.data.eval.empty()) {
    run.eval = data::open_dataset(recipe.data.eval, recipe.data.image_root, *run.tokenizer,
                                  run.encode, {.kept = {kept + "eval"}, .lengths = lengths});
  }
  if (recipe.data.group_by_length) sample_lengths(run);
  return run;
}

void keep_indexes(const RunData& data, const recipe::Recipe& recipe) {
  const std::string folder = recipe.output_dir + "/index";
  try {
    io::make_dirs(folder);
    data.train->keep_index(folder + "/train");
    if (data.eval && recipe.data.eval_share == 0) data.eval->keep_index(folder + "/eval");
  } catch (const Error& error) {
    warning("the index of the data could not be kept, the next start makes it again: " +
            error.info().what + " (" + error.info().found + ")");
  }
}

const std::vector<data::SampleLength>& sample_lengths(RunData& data) {
  if (data.lengths.empty())
    data.lengths = data::measure_lengths(*data.train, data.workers, &data.bad);
  return data.lengths;
}

const std::string& data_hash(RunData& data) {
  if (!data.data_hash) data.data_hash = data.train->hash();
  return *data.data_hash;
}

const std::string& image_stamp(RunData& data) {
  if (data.image_stamp) return *data.image_stamp;
  Sha256 seen;
  bool any = false;
  each_image(*data.train, [&](const data::ImageFile& file, int32_t) {
    any = true;
    seen.update(std::to_string(file.bytes) + " " + std::to_string(file.seconds) + "." +
                std::to_string(file.nanoseconds) + "\n");
  });
  return data.image_stamp.emplace(any ? seen.hex().substr(0, 16) : "");
}

const std::string& image_digest(RunData& data) {
  if (!data.image_digest) data.image_digest = digest_of_images(*data.train);
  return *data.image_digest;
}

const HeldOutIdentity& held_out_identity(RunData& data) {
  if (!data.held_out) {
    data.held_out.emplace();
    if (data.eval) *data.held_out = {data.eval->hash(), digest_of_images(*data.eval)};
  }
  return *data.held_out;
}

std::vector<data::SourceShare> source_shares(const recipe::Recipe& recipe,
                                             const data::Dataset& train) {
  const std::vector<recipe::Source>& listed = recipe.data.train.list;
  std::vector<data::SourceShare> shares(listed.size());
  if (listed.empty()) return shares;
  for (int64_t i = 0; i < train.size(); ++i) ++shares[static_cast<size_t>(train.source(i))].rows;
  int64_t begin = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i].begin = begin;
    shares[i].taken = data::rows_taken(listed[i].weight, shares[i].rows);
    begin += shares[i].rows;
    if (shares[i].taken < 0) {
      refuse(ErrorKind::kUsage, "a weight that makes an epoch too long",
             "data.train, " + listed[i].path, std::to_string(listed[i].weight), {},
             "lower its weight");
    }
  }
  return shares;
}

int64_t settled_rows_of_step(const recipe::Recipe& recipe) {
  if (recipe.train.grad_accum > 0) return rows_of_step(recipe);
  recipe::Recipe settled = recipe;
  try {
    const auto [tokenizer, options] = recipe_encoding(recipe);
    std::unique_ptr<data::Dataset> rows = open_train(recipe, *tokenizer, options);
    if (recipe.data.eval_share > 0)
      rows = data::hold_out(std::move(rows), recipe.data.eval_share,
                            static_cast<uint64_t>(recipe.train.seed))
                 .train;
    settle_accumulation(settled,
                        data::epoch_size({.sources = source_shares(recipe, *rows)}, rows->size()));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    notice("data.train cannot be read (" + error.info().what + "), so that the evaluation takes " +
           std::to_string(rows_of_step(recipe)) + " rows as a step; training may have taken fewer");
  }
  return rows_of_step(settled);
}

data::LoaderOptions loader_options(const RunSettings& settings,
                                   const std::vector<data::SampleLength>& lengths) {
  const recipe::Recipe& recipe = settings.recipe;
  data::LoaderOptions options{.batch_size = recipe.train.batch_size,
                              .grad_accum = recipe.train.grad_accum,
                              .workers = recipe.data.workers,
                              .seed = static_cast<uint64_t>(recipe.train.seed),
                              .shuffle = recipe.data.shuffle.rows,
                              .blocks = recipe.data.shuffle.blocks,
                              .skip_bad = recipe.data.on_bad_sample == recipe::BadSampleRule::kSkip,
                              .max_tokens = recipe.train.max_tokens_per_step,
                              .sources = settings.sources};
  const auto tokens_of = [&] {
    auto tokens = std::make_shared<std::vector<int32_t>>();
    for (const data::SampleLength& length : lengths) tokens->push_back(length.packed());
    return tokens;
  };
  if (recipe.data.group_by_length) options.lengths = tokens_of();
  if (options.max_tokens > 0 && !lengths.empty()) options.tokens = tokens_of();
  return options;
}

}  // namespace lft::train
