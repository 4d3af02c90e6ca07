// The complete description of a run. To add a field: declare it here and add one line to visit() in
// recipe_fields.h. Plain data.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/recipe/choices.h"

namespace lft::recipe {

constexpr int64_t kMostInAStep = 65536;  // limit of train.batch_size, and of train.grad_accum

/// data.shuffle: whether rows are shuffled, or only full blocks of them.
struct Shuffle {
  bool rows = true, blocks = false;
  Shuffle(bool on = true) : rows(on) {}  // NOLINT: true and false are words of a recipe
  bool operator==(const Shuffle&) const = default;
};

/// A part of data.train; an epoch has weight x rows of it.
struct Source {
  std::string path, image_root;  // empty: data.image_root
  double weight = 1;
  bool operator==(const Source&) const = default;
};

/// data.train: one path, or a list of sources.
struct TrainData {
  std::string path;                                          // empty for a list
  std::vector<Source> list;                                  // empty for one path
  TrainData(std::string one = {}) : path(std::move(one)) {}  // NOLINT: a path is one of its forms
  TrainData(const char* one) : path(one) {}                  // NOLINT
  bool operator==(const TrainData&) const = default;
  /// All sources; a single path has weight 1.
  std::vector<Source> sources() const {
    return list.empty() ? std::vector<Source>{{.path = path, .image_root = {}}} : list;
  }
  /// For messages: the path, or all of them.
  std::string text() const;
};

/// A mapping of patterns to values, in the recipe's order.
template <class T>
using ByPattern = std::vector<std::pair<std::string, T>>;

/// A mapping of any values, as the text of a JSON object; empty: none.
struct Mapping {
  std::string json;
  bool operator==(const Mapping&) const = default;
};

struct Recipe {
  int64_t version = 1;
  std::string output_dir;
  struct Model {
    std::string path;
    Choice<ModelInit> init;
    Choice<BaseDtype> base_dtype;
    bool check_weights = true;
  } model;
  struct Lora {
    std::string variant = "lora";  // one of models/lora/registry.cpp
    int64_t rank = 128;
    double alpha = 256, dropout = 0.05;
    std::vector<std::string> targets = {"llm:all-linear"};
    ByPattern<int64_t> rank_pattern;
    ByPattern<double> alpha_pattern;
    std::string init_from;
  } lora;
  std::vector<std::string> full;  // projector, vision, llm, all
  struct Objective {
    Choice<ObjectiveName> name;
    double beta = 0;  // 0: the objective's own
    double label_smoothing = 0, sft_weight = 0, margin = 0.5;
    double desirable_weight = 1, undesirable_weight = 1;
  } objective;
  struct Data {
    TrainData train;
    std::string eval, image_root, chat_template = "auto", template_date = "2024-07-26";
    Choice<ImageFit> image_fit;
    Choice<AlphaRule> alpha;
    Choice<BadSampleRule> on_bad_sample;
    Choice<UnknownKeyRule> unknown_keys = UnknownKeyRule::kWarn;
    Choice<SpecialTokenRule> special_tokens_in_text;
    ByPattern<std::string> columns;  // from lft's name to the column of the data
    Mapping template_args;
    int64_t max_tokens = 2048, workers = 4, image_cache_mb = 1024;
    double eval_share = 0;  // 0: the rows of data.eval
    int64_t max_bad = 10, min_pixels = 0, max_pixels = 64'000'000, max_side = 65535;
    Shuffle shuffle = true;
    bool group_by_length = false, follow_symlinks = false;
  } data;
  struct Optim {
    std::string name = "adamw";  // one of src/train/optim/rules.cpp
    Choice<ScheduleKind> schedule = ScheduleKind::kCosine;
    double lr = 2e-4, projector_lr = -1, vision_lr = -1;  // the latter two < 0: lr
    std::array<double, 2> betas = {0.9, 0.999};
    double lora_plus_ratio = 1;  // 1: the learning rate of B is A's
    double eps = 1e-8, weight_decay = 0, clip_grad_norm = 1.0, warmup_ratio = 0.03;
    double min_lr_ratio = 0, decay_ratio = 0.2, neftune_alpha = 0;
    bool offload = false, init_moments = false;
  } optim;
  struct Precision {
    Choice<ComputeDtype> compute;
    Choice<RecoveryRule> recovery;
    double lr_backoff = 0.5;
    struct LossScale {
      double init = 65536, growth_factor = 2, backoff_factor = 0.5;
      int64_t growth_interval = 2000;
    } loss_scale;
  } precision;
  struct Train {
    int64_t epochs = 1, max_steps = 0, batch_size = 16;
    int64_t grad_accum = 0, global_batch = 0;  // see settle_accumulation() of run_settings.h
    Choice<Checkpointing> activation_checkpointing;
    int64_t seed = 42;
    int64_t max_tokens_per_step = 0;  // 0: micro-batches of batch_size samples, padded
    Choice<CudaGraphs> cuda_graphs;
    bool deterministic = true, worst_first = true, activation_offload = false;
    int64_t eval_every_steps = 0;  // 0: at the end of the run only (when data.eval is given)
    Choice<KeepBest> keep_best;
    int64_t patience = 0;  // evaluations; 0: to the last step
    Choice<Shard> shard;
  } train;
  struct Checkpoint {
    int64_t every_steps = 500, keep = 2;
    bool at_step_zero = true;
  } checkpoint;
  struct Dist {
    int64_t timeout_s = 600;
  } dist;
  struct Log {
    int64_t every_steps = 1, layer_grad_norms_every = 100, layer_activation_norms_every = 100;
    int64_t answers = 8;
    bool tensorboard = true;
    double expect_first_loss = 0;  // 0: any
  } log;
};

/// Strict: every problem (unknown, duplicate, missing, mistyped, out-of-range key) in one kUsage
/// error with line, key path and nearest name. `sets`: "key.path=value" overrides, applied to the
/// tree before it is checked. read_recipe() replaces a run's folder in model.path and
/// lora.init_from by its model or adapter, with a notice, and also searches for paths that begin
/// with recipes/ in the folder of bundled recipes.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& sets = {});
Recipe parse_recipe(const std::string& text, const std::string& where,
                    const std::vector<std::string>& sets = {});
/// Resets train.grad_accum to auto if it is too small for train.global_batch, which only auto
/// allows (check_together() of recipe.cpp). A dumped recipe then keeps the requested global batch,
/// and the same rows resolve it to the same number.
Recipe as_asked(Recipe recipe);
/// The resolved copy with every field, which parse_recipe reads back with the same result.
std::string dump_recipe(const Recipe& recipe);
/// Field reference for recipes/README.md and `lft recipe fields`: key, type, default, range, help;
/// one Markdown table row per field.
std::string recipe_reference();

}  // namespace lft::recipe
