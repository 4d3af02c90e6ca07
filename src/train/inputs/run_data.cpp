#include "src/train/inputs/run_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include "src/base/hash.h"
#include "src/data/held_out.h"
#include "src/io/files.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::train {
namespace {

constexpr size_t kMostImagesRead = 10'000;
constexpr int64_t kMostImageBytesRead = 256 << 20;

struct ImageFile {
  std::string path;
  struct stat status;
};

/// Those of the rows to train on, in their order; what cannot be read is the loader's to judge.
std::vector<ImageFile> image_files(const data::Dataset& dataset) {
  std::vector<ImageFile> files;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    try {
      for (std::string& path : dataset.image_paths(i)) {
        ImageFile file{std::move(path), {}};
        if (stat(file.path.c_str(), &file.status) == 0) files.push_back(std::move(file));
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }
  return files;
}

/// With a megabyte of memory, whatever its size.
void hash_pieces(Sha256& hash, const std::string& path) {
  const io::FileHandle file = io::FileHandle::open_to_read(path);
  std::string piece(1 << 20, '\0');
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), file.size() - at));
    file.read_at(at, piece.data(), piece.size());
    hash.update(piece);
  }
}

}  // namespace

RunData open_run_data(const recipe::Recipe& recipe, const family::ModelConfig& config,
                      std::unique_ptr<text::Tokenizer> tokenizer,
                      std::vector<std::string>* notices) {
  RunData run;
  run.tokenizer = std::move(tokenizer);
  run.workers = recipe.data.workers;
  run.image_root = recipe.data.image_root.empty() ? "." : recipe.data.image_root;
  std::string notice;
  run.encode = data::encode_options(recipe.model.path, config, *run.tokenizer, encode_rules(recipe),
                                    &notice);
  if (!notice.empty()) notices->push_back(notice);
  apply_data_rules(recipe, run.encode);
  run.encode.reading = std::make_shared<data::ReadingBudget>();
  const int64_t budget = recipe.train.max_tokens_per_step;
  if (budget > 0 && budget < run.encode.max_tokens) {
    refuse(ErrorKind::kUsage,
           "train.max_tokens_per_step is below the longest sample "
           "that data.max_tokens lets through",
           "train.max_tokens_per_step", std::to_string(budget),
           "at least " + std::to_string(run.encode.max_tokens),
           "raise it, or lower data.max_tokens");
  }
  run.train =
      data::open_dataset(recipe.data.train, recipe.data.image_root, *run.tokenizer, run.encode);
  if (recipe.data.eval_share > 0) {
    const int64_t rows = run.train->size();
    data::HeldOut parts = data::hold_out(std::move(run.train), recipe.data.eval_share,
                                         static_cast<uint64_t>(recipe.train.seed));
    run.train = std::move(parts.train);
    run.eval = std::move(parts.eval);
    notices->push_back("data.eval_share: " + std::to_string(run.eval->size()) + " of " +
                       std::to_string(rows) + " rows are held out");
  }
  if (run.train->size() == 0) refuse(ErrorKind::kInput, "no row to train on", recipe.data.train);
  if (!recipe.data.eval.empty())
    run.eval =
        data::open_dataset(recipe.data.eval, recipe.data.image_root, *run.tokenizer, run.encode);
  if (recipe.data.group_by_length) sample_lengths(run);
  return run;
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
  std::string seen;
  for (const ImageFile& file : image_files(*data.train)) {
    seen += std::to_string(file.status.st_size) + " " + std::to_string(file.status.st_mtim.tv_sec) +
            "." + std::to_string(file.status.st_mtim.tv_nsec) + "\n";
  }
  return data.image_stamp.emplace(seen.empty() ? "" : sha256(seen).substr(0, 16));
}

const std::string& image_digest(RunData& data) {
  if (data.image_digest) return *data.image_digest;
  const std::vector<ImageFile> files = image_files(*data.train);
  int64_t bytes = 0;
  for (const ImageFile& file : files) bytes += file.status.st_size;
  const bool few = files.size() <= kMostImagesRead && bytes <= kMostImageBytesRead;
  Sha256 hash;
  for (const ImageFile& file : files) {
    hash.update(std::to_string(file.status.st_size) + "\n");
    const bool ours = S_ISREG(file.status.st_mode) && io::is_inside(file.path, data.image_root);
    if (few && ours && access(file.path.c_str(), R_OK) == 0) hash_pieces(hash, file.path);
  }
  return data.image_digest.emplace(files.empty() ? "" : hash.hex().substr(0, 16));
}

data::LoaderOptions loader_options(const recipe::Recipe& recipe,
                                   const std::vector<data::SampleLength>& lengths) {
  data::LoaderOptions options{.batch_size = recipe.train.batch_size,
                              .grad_accum = recipe.train.grad_accum,
                              .workers = recipe.data.workers,
                              .seed = static_cast<uint64_t>(recipe.train.seed),
                              .shuffle = recipe.data.shuffle,
                              .skip_bad = recipe.data.on_bad_sample == "skip",
                              .max_tokens = recipe.train.max_tokens_per_step};
  if (recipe.data.group_by_length) {
    auto tokens = std::make_shared<std::vector<int32_t>>();
    for (const data::SampleLength& length : lengths) tokens->push_back(length.tokens);
    options.lengths = std::move(tokens);
  }
  return options;
}

}  // namespace lft::train
