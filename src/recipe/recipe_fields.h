// The definition of every recipe field: key, range or choices, roles, help. Reader, dump, reference
// and the lists of roles.h are visitors of this list; the defaults are in recipe.h.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "models/lora/variant_names.h"
#include "src/recipe/recipe.h"

namespace lft::recipe {

/// Optional parts of a run, in the order in which lft debug bare enables them again.
enum class Part {
  kNone,
  kPrecision,
  kEps,
  kAdapterScale,
  kClipping,
  kSchedule,
  kWeightDecay,
  kDropout,
  kAccumulation,
  kNoise,
  kCheckpointing
};

/// The constraints and purpose of a field. For lists and mappings, `choices` and the range apply to
/// every item.
struct FieldRule {
  bool required = false;
  bool nullable = false;   // null means "not given": the default stays
  bool not_empty = false;  // for text and lists
  double low = -std::numeric_limits<double>::infinity(),
         high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  std::vector<std::string> choices = {};
  bool may_change = false;     // on resume: the run stays the same run
  bool trains = false;         // affects which tensors are trained, or their effect on the model
  const char* zero = nullptr;  // for integers: the word for 0
  Part part = Part::kNone;     // the optional part of a run that the field belongs to
  const char* core = nullptr;  // the value that disables this part
  bool hinders_fit = false;    // hinders a model from fitting a few rows; off in lft debug overfit
};

/// Base of visitors that need a field's dotted path: prefix + key.
struct SectionPath {
  std::string prefix;

  template <class Body>
  void section(const char* key, Body body) {
    const std::string outer = prefix;
    prefix += std::string(key) + ".";
    body();
    prefix = outer;
  }
};

/// What data.columns may name.
inline std::vector<std::string> column_roles() {
  return {"question", "answer",  "image",   "images",   "system", "input",  "history", "choices",
          "label",    "caption", "answers", "messages", "tools",  "weight", "id"};
}

constexpr double kMaxInt = static_cast<double>(std::numeric_limits<int64_t>::max());

template <class Visitor, class Section>
void visit_model(Visitor& v, Section& m) {
  v.field("path", m.path, {.required = true, .not_empty = true, .may_change = true},
          "directory in HF layout: config.json, safetensors, tokenizer, processor files");
  v.field("init", m.init, {.choices = m.init.all_words()},
          "random: draw weights for config.json's shapes, for benchmarks");
  v.field("base_dtype", m.base_dtype, {.choices = m.base_dtype.all_words()},
          "storage of the frozen weights; auto: the checkpoint's dtype, converted where another is "
          "faster on the device; nf4: 4 bits in the decoder's linear layers, bf16 elsewhere; fp8: "
          "their products in 8 bits");
  v.field("check_weights", m.check_weights, {},
          "look for NaN and inf in the weights while they load");
}

template <class Visitor, class Section>
void visit_lora(Visitor& v, Section& l) {
  v.field("variant", l.variant, {.choices = lora::variant_names(), .trains = true},
          lora::variants_help().c_str());
  v.field("rank", l.rank, {.low = 1, .high = 65536, .trains = true},
          "inner dimension of the update");
  v.field("alpha", l.alpha,
          {.low = 0, .high = 1e6, .low_open = true, .trains = true, .part = Part::kAdapterScale},
          "strength of the update, see variant");
  v.field("dropout", l.dropout,
          {.low = 0,
           .high = 1,
           .high_open = true,
           .part = Part::kDropout,
           .core = "0",
           .hinders_fit = true},
          "on the input of A, while training");
  v.field("targets", l.targets, {.trains = true},
          "layers to adapt, as scope:pattern; scopes llm, projector, vision; all-linear is every "
          "linear layer but the LM head");
  v.field("rank_pattern", l.rank_pattern, {.low = 1, .high = 65536, .trains = true},
          "other ranks: of a mapping of patterns, {q_proj: 8, \"llm:*.mlp.*\": 4}, the first that "
          "matches a layer");
  v.field("alpha_pattern", l.alpha_pattern,
          {.low = 0, .high = 1e6, .low_open = true, .trains = true},
          "other alphas, by the same rule; a layer of another rank keeps lora.alpha without one");
  v.field("init_from", l.init_from, {.nullable = true},
          "PEFT adapter directory to start from, fully fine-tuned parts of another run, or a "
          "checkpoint of another run (checkpoints/step-N)");
}

template <class Visitor, class Section>
void visit_data(Visitor& v, Section& d) {
  v.field(
      "train", d.train, {.required = true, .not_empty = true, .may_change = true},
      "JSON, JSONL, CSV, TSV, tar, Parquet or Arrow (LLaVA, ShareGPT, OpenAI messages, or columns "
      "such as question and answer), a folder of such files, an imagefolder, "
      "DIR/dataset_info.json#NAME, or a folder of lft prepare; a list mixes several: of each an "
      "epoch takes weight (1, above 0) x rows, and image_root is data.image_root where it is not "
      "given");
  v.field("eval", d.eval, {.nullable = true, .may_change = true},
          "held-out rows in the same formats");
  v.field("eval_share", d.eval_share, {.low = 0, .high = 1, .high_open = true},
          "above 0, in place of data.eval: this share of data.train is held out, chosen by "
          "train.seed; rows that share an image stay on one side");
  v.field("image_root", d.image_root, {.nullable = true, .may_change = true},
          "image paths in the data start here, and stay below it; not given: the working "
          "directory, or the folder of an imagefolder or a dataset_info.json");
  v.field("columns", d.columns, {.choices = column_roles(), .may_change = true},
          "names of the data's columns, as {question: q, answer: a, image: img}, where they are "
          "others; used for each file that has one of them");
  v.field("follow_symlinks", d.follow_symlinks, {.may_change = true},
          "let links below image_root lead to files outside it");
  v.field("max_pixels", d.max_pixels, {.low = 1, .high = 1 << 28},
          "a larger image is a bad sample, not decoded; native, where it is not the default: it is "
          "scaled down to this many pixels, and the default bounds what is decoded");
  v.field("max_side", d.max_side, {.low = 1, .high = 65535},
          "an image with a longer side is a bad sample, not decoded");
  v.field("template", d.chat_template, {.not_empty = true},
          "chat template; auto: the checkpoint's own, else its family's; a file of Jinja; or "
          "llava-v1, llava-hf, plain, chatml, qwen3-vl, internvl, internvl2_5, mistral, smolvlm, "
          "gemma");
  v.field("template_args", d.template_args, {},
          "more variables for the chat template, as {enable_thinking: false}");
  v.field("template_date", d.template_date, {.not_empty = true},
          "the day that the chat template's strftime_now takes for today, in quotes: a run does "
          "not depend on the day of its start");
  v.field("image_fit", d.image_fit, {.choices = d.image_fit.all_words()},
          "pad to a square (as LLaVA-1.5 was trained), crop (as its HF processor does), or native: "
          "as the model's own processor does; a LLaVA whose processor stretches images (SigLIP's; "
          "size with height and width) is stretched under crop, too; auto: pad for a LLaVA whose "
          "processor crops, else native");
  v.field("alpha", d.alpha, {.choices = d.alpha.all_words()},
          "what becomes of transparency: drop leaves the colours under it, as transformers does; "
          "white composites them on white, as vLLM does with RGBA images");
  v.field("min_pixels", d.min_pixels, {.low = 0, .high = 1 << 28},
          "native: a smaller image is scaled up to this many pixels; 0: the model's own number");
  v.field("max_tokens", d.max_tokens, {.low = 1, .high = 1 << 24},
          "longest sample, image positions included; lowered to the model's positions");
  v.field("on_bad_sample", d.on_bad_sample, {.choices = d.on_bad_sample.all_words()},
          "skipped samples are counted and named");
  v.field("unknown_keys", d.unknown_keys,
          {.choices = d.unknown_keys.all_words(), .may_change = true},
          "a key of a row that lft does not use is an error, or counted by name in one warning; a "
          "key with a meaning that lft does not support (videos, boxes, weights, preferences) is "
          "always an error");
  v.field("special_tokens_in_text", d.special_tokens_in_text,
          {.choices = d.special_tokens_in_text.all_words()},
          "a special token of the tokenizer in a row's own words is an error, or the words that "
          "spell it, or the token (as HF tokenizers take it); with text and special, marks of "
          "other tools (<video>, <image_1>) are words, too, and counted in a warning");
  v.field("max_bad", d.max_bad, {.low = 0, .high = 1e12, .may_change = true},
          "samples of one data set that on_bad_sample: skip may leave out; one more stops the run, "
          "naming the first");
  v.field("shuffle", d.shuffle, {},
          "order is a function of seed, epoch and index; blocks: shuffle blocks of 1,024 "
          "consecutive rows and read each in order, for data sets larger than memory");
  v.field("group_by_length", d.group_by_length, {},
          "put samples of like length into one batch: less padding; the order stays a function of "
          "the seed");
  v.field("workers", d.workers, {.low = 1, .high = 256, .may_change = true},
          "threads that decode and tokenise ahead; they do not change the result");
  v.field(
      "image_cache_mb", d.image_cache_mb, {.low = 0, .high = 1'000'000, .may_change = true},
      "MiB for the features of images on a CPU, if vision tower and projector are frozen: each "
      "image is computed once instead of in every epoch and evaluation; the result is the same");
}

template <class Visitor, class Section>
void visit_optim(Visitor& v, Section& o) {
  v.field("name", o.name, {.choices = {"adamw", "adamw8bit", "lion", "muon"}},
          "optimizer; adamw8bit keeps the moments in 8 bits, block by block, and those of "
          "embeddings in 32; lion: one moment, sign updates; typically a tenth of AdamW's lr and "
          "betas [0.9, 0.99]; muon moves a matrix along its orthogonalised momentum "
          "(torch.optim.Muon, adjust_lr_fn original; usual is lr 0.02), every other tensor as "
          "adamw, and not with optim.offload");
  v.field("lr", o.lr, {.low = 0, .high = 10}, "peak learning rate");
  v.field("projector_lr", o.projector_lr, {.nullable = true, .low = 0, .high = 10},
          "peak learning rate of the projector; not given: lr");
  v.field("vision_lr", o.vision_lr, {.nullable = true, .low = 0, .high = 10},
          "peak learning rate of the vision tower; not given: lr");
  v.field("lora_plus_ratio", o.lora_plus_ratio, {.low = 1, .high = 1e4},
          "LoRA+: the learning rate of every lora_B is this times that of its lora_A");
  v.field("betas", o.betas, {.low = 0, .high = 1, .high_open = true},
          "decay of Adam's two moments; lion: of its step's mean and of its moment");
  v.field("eps", o.eps, {.low = 0, .high = 1, .low_open = true, .part = Part::kEps},
          "added to the root of the second moment");
  v.field("weight_decay", o.weight_decay,
          {.low = 0, .high = 10, .part = Part::kWeightDecay, .core = "0", .hinders_fit = true},
          "decoupled, on every trainable tensor");
  v.field("clip_grad_norm", o.clip_grad_norm,
          {.low = 0, .high = 1e9, .part = Part::kClipping, .core = "0"},
          "largest global L2 norm of the gradients; 0: no clipping");
  v.field("offload", o.offload, {.may_change = true},
          "keep the moments in host memory; the same bits");
  v.field("init_moments", o.init_moments, {},
          "start with the moments of the checkpoint in lora.init_from, too");
  v.field("schedule", o.schedule,
          {.choices = o.schedule.all_words(),
           .part = Part::kSchedule,
           .core = "constant",
           .hinders_fit = true},
          "learning rate after warm-up; wsd: constant, then a cosine over its last steps");
  v.field("warmup_ratio", o.warmup_ratio,
          {.low = 0, .high = 1, .part = Part::kSchedule, .core = "0", .hinders_fit = true},
          "share of the steps in which the learning rate rises from 0");
  v.field("min_lr_ratio", o.min_lr_ratio,
          {.low = 0, .high = 1, .part = Part::kSchedule, .core = "0", .hinders_fit = true},
          "share of the peak that linear, cosine and wsd end at");
  v.field("decay_ratio", o.decay_ratio, {.low = 0, .high = 1},
          "wsd: share of the steps in which the learning rate falls");
  v.field("neftune_alpha", o.neftune_alpha,
          {.low = 0, .high = 1000, .part = Part::kNoise, .core = "0", .hinders_fit = true},
          "above 0: in training uniform noise of up to this / sqrt(tokens x width) on the text's "
          "embeddings (NEFTune); usual is 5");
}

template <class Visitor, class Section>
void visit_precision(Visitor& v, Section& p) {
  v.field("compute", p.compute,
          {.choices = p.compute.all_words(), .part = Part::kPrecision, .core = "fp32"},
          "auto: bf16 where the device has it, else fp16, else fp32");
  v.section("loss_scale", [&] {
    auto& s = p.loss_scale;
    v.field("init", s.init, {.low = 1, .high = 4294967296.0}, "first loss scale under fp16");
    v.field("growth_factor", s.growth_factor, {.low = 1, .high = 1024}, "the scale grows by this");
    v.field("backoff_factor", s.backoff_factor,
            {.low = 0, .high = 1, .low_open = true, .high_open = true}, "after a skipped step");
    v.field("growth_interval", s.growth_interval, {.low = 1, .high = kMaxInt},
            "good steps in a row before the scale grows");
  });
  v.field("recovery", p.recovery, {.choices = p.recovery.all_words()},
          "on a non-finite step: continue in FP32 once, or stop");
  v.field("lr_backoff", p.lr_backoff, {.low = 0, .high = 1, .low_open = true},
          "the recovery multiplies the learning rate by this");
}

template <class Visitor, class Section>
void visit_train(Visitor& v, Section& t) {
  v.field("epochs", t.epochs, {.low = 1, .high = 1e6, .may_change = true}, "passes over the data");
  v.field("max_steps", t.max_steps, {.low = 0, .high = 1e12, .may_change = true},
          "above 0: this many steps, regardless of epochs");
  v.field("batch_size", t.batch_size, {.low = 1, .high = kMostInAStep},
          "samples in one forward pass");
  v.field(
      "grad_accum", t.grad_accum,
      {.low = 1,
       .high = kMostInAStep,
       .zero = "auto",
       .part = Part::kAccumulation,
       .core = "1",
       .hinders_fit = true},
      "forward passes in one step; auto: 1, or as many as make train.global_batch samples, fewer "
      "where an epoch would have less than 32 steps");
  v.field("global_batch", t.global_batch,
          {.low = 0,
           .high = kMostInAStep,
           .part = Part::kAccumulation,
           .core = "0",
           .hinders_fit = true},
          "above 0: samples in one step, for grad_accum: auto");
  v.field("max_tokens_per_step", t.max_tokens_per_step, {.low = 0, .high = 1 << 24},
          "above 0: the step's samples are packed without padding into forward passes of at most "
          "this many tokens; data.max_tokens must "
          "not be above it");
  v.field("activation_checkpointing", t.activation_checkpointing,
          {.choices = t.activation_checkpointing.all_words(),
           .may_change = true,
           .part = Part::kCheckpointing,
           .core = "none"},
          "recompute the activations of every block, of each second or fourth one, in the backward "
          "pass: less memory, the same bits");
  v.field("activation_offload", t.activation_offload, {.may_change = true},
          "keep the inputs of recomputed blocks in host memory; the same bits; needs "
          "activation_checkpointing");
  v.field("cuda_graphs", t.cuda_graphs, {.choices = t.cuda_graphs.all_words()},
          "auto: on a GPU, packed micro-batches (max_tokens_per_step) are launched as CUDA graphs, "
          "filled up to a few sizes");
  v.field("worst_first", t.worst_first, {.may_change = true},
          "run the largest micro-batch once before step 1, so that an out-of-memory error appears "
          "immediately");
  v.field("seed", t.seed, {.low = 0, .high = kMaxInt}, "of initialisation, order and dropout");
  v.field("deterministic", t.deterministic, {}, "same seed and build, same bytes");
  v.field("eval_every_steps", t.eval_every_steps, {.low = 0, .high = 1e12, .may_change = true},
          "0: at the end of the run only; needs data.eval or data.eval_share");
  v.field("keep_best", t.keep_best, {.choices = t.keep_best.all_words()},
          "the final adapter is from the evaluation with the lowest loss, or the highest value of "
          "a metric (lft eval --metric), not from the last step");
  v.field(
      "patience", t.patience, {.low = 0, .high = 1e6, .may_change = true},
      "above 0: stop after this many evaluations in a row without a better one; needs keep_best");
  v.field("shard", t.shard, {.choices = t.shard.all_words(), .may_change = true},
          "base: the processes on a machine each store a slice of the decoder's frozen layers and "
          "gather one layer after the other: less memory, the same bits");
}

template <class Visitor, class Section>
void visit_checkpoint(Visitor& v, Section& c) {
  v.field("every_steps", c.every_steps, {.low = 1, .high = 1e12, .may_change = true},
          "the last step is always saved");
  v.field("keep", c.keep, {.low = 1, .high = 1e6, .may_change = true},
          "newest checkpoints kept, in addition to step 0");
  v.field("at_step_zero", c.at_step_zero, {.may_change = true},
          "save before the first step too, and keep that");
}

template <class Visitor, class Section>
void visit_dist(Visitor& v, Section& d) {
  v.field("timeout_s", d.timeout_s, {.low = 1, .high = 1e6, .may_change = true},
          "seconds after which a process that does not answer the others counts as lost; must "
          "exceed the time to write a checkpoint");
}

template <class Visitor, class Section>
void visit_log(Visitor& v, Section& l) {
  v.field("every_steps", l.every_steps, {.low = 1, .high = 1e9, .may_change = true},
          "steps between two printed lines, at least; one comes every five seconds, and on a "
          "terminal a "
          "bar is drawn instead");
  v.field("tensorboard", l.tensorboard, {.may_change = true}, "write TensorBoard event files");
  v.field("answers", l.answers, {.low = 0, .high = 64, .may_change = true},
          "rows whose answers from before and after training are in the report; 0: no row is "
          "answered, which saves the time");
  v.field("layer_grad_norms_every", l.layer_grad_norms_every,
          {.low = 0, .high = 1e9, .may_change = true},
          "steps between two records of every layer's gradient norm; 0: never");
  v.field("layer_activation_norms_every", l.layer_activation_norms_every,
          {.low = 0, .high = 1e9, .may_change = true},
          "steps between two records of every layer's output norm; 0: never");
  v.field(
      "expect_first_loss", l.expect_first_loss, {.low = 0, .high = 1e6, .may_change = true},
      "above 0: the run stops before step 1 unless the loss before training is within 2% of it");
}

template <class Visitor, class Section>
void visit_objective(Visitor& v, Section& o) {
  v.field("name", o.name, {.choices = o.name.all_words()},
          "sft: each row is one answer; kto: with a label, desirable or not; the others learn from "
          "pairs "
          "of a chosen and a rejected answer");
  v.field("beta", o.beta, {.low = 0, .high = 1e3},
          "strength of the preference in the loss; 0: the objective's own, 2 for simpo and 0.1 for "
          "the others");
  v.field("label_smoothing", o.label_smoothing, {.low = 0, .high = 0.5, .high_open = true},
          "dpo: the share of pairs whose two answers are assumed to be swapped");
  v.field("sft_weight", o.sft_weight, {.low = 0, .high = 1e3},
          "above 0: adds this many times the chosen answer's mean negative log-likelihood (RPO)");
  v.field("margin", o.margin, {.low = 0, .high = 1e3},
          "simpo: the margin between the mean log-probabilities of the two answers; gamma / beta "
          "of its paper");
  v.field("desirable_weight", o.desirable_weight, {.low = 0, .high = 1e3},
          "kto: weight of the rows with a desirable answer");
  v.field("undesirable_weight", o.undesirable_weight, {.low = 0, .high = 1e3},
          "kto: weight of the rows with an undesirable answer");
}

/// A visitor has field(key, value, rule, help) for int64_t, double, bool, std::string, Choice,
/// Shuffle, TrainData, std::vector<std::string> and std::array<double, 2>, and section(key, body),
/// which calls body between entering and leaving the mapping `key`. R is Recipe or const Recipe.
template <class Visitor, class R>
void visit(Visitor& v, R& r) {
  v.field("version", r.version, {.required = true, .low = 1, .high = 1}, "format of this file");
  v.field("output_dir", r.output_dir, {.required = true, .not_empty = true, .may_change = true},
          "where the run writes; created if absent");
  v.section("model", [&] { visit_model(v, r.model); });
  v.section("lora", [&] { visit_lora(v, r.lora); });
  v.field("full", r.full, {.choices = {"projector", "vision", "llm", "all"}, .trains = true},
          "fully fine-tuned parts, without LoRA; with lora.targets: [] nothing else is trained");
  v.section("objective", [&] { visit_objective(v, r.objective); });
  v.section("data", [&] { visit_data(v, r.data); });
  v.section("optim", [&] { visit_optim(v, r.optim); });
  v.section("precision", [&] { visit_precision(v, r.precision); });
  v.section("train", [&] { visit_train(v, r.train); });
  v.section("checkpoint", [&] { visit_checkpoint(v, r.checkpoint); });
  v.section("dist", [&] { visit_dist(v, r.dist); });
  v.section("log", [&] { visit_log(v, r.log); });
}

}  // namespace lft::recipe
