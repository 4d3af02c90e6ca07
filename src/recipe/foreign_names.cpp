#include "src/recipe/foreign_names.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "models/lora/variant_names.h"

namespace lft::recipe {
namespace {

constexpr char kEverySteps[] = "a number of steps; 0 evaluates at the end alone";
constexpr char kFewer[] =
    "a file with fewer rows; lft debug subset RECIPE -n N trains on the first N";
constexpr char kFull[] = "a list of fully fine-tuned parts; all others are frozen";
constexpr char kOnlyPrecision[] = "auto, bf16, fp16 or fp32";
constexpr char kShare[] = "a share of all steps";
constexpr char kStorage[] = "nf4 for 4 bits, fp8 for 8";
constexpr char kTargets[] = "as [\"llm:all-linear\"]";
constexpr char kOfTheRun[] = "of the whole run";

constexpr auto kNames = std::to_array<ForeignName>({
    // the model
    {"model_name_or_path", "model.path"},
    {"model_name", "model.path"},
    {"model_id", "model.path"},
    {"model_id_or_path", "model.path"},
    {"model_path", "model.path"},
    {"model_dir", "model.path"},
    {"pretrained_model_name_or_path", "model.path"},
    {"base_model", "model.path"},
    {"base_model_name_or_path", "model.path"},
    {"checkpoint_dir", "model.path"},
    {"torch_dtype", "model.base_dtype", "and precision.compute for what is computed"},
    {"quantization_bit", "model.base_dtype", kStorage},
    {"quantization_method", "model.base_dtype", kStorage},
    {"quant_method", "model.base_dtype", kStorage},
    {"quant_bits", "model.base_dtype", kStorage},
    {"load_in_4bit", "model.base_dtype", "nf4"},
    {"load_in_8bit", "model.base_dtype", "fp8"},
    {"bits", "model.base_dtype", kStorage},
    {"bnb_4bit_quant_type", "model.base_dtype", "nf4"},
    {"bnb_4bit_compute_dtype", "precision.compute", kOnlyPrecision},
    {"quantize_base", "model.base_dtype", "nf4"},
    // adapters
    {"r", "lora.rank"},
    {"lora_r", "lora.rank"},
    {"lora_rank", "lora.rank"},
    {"lora_alpha", "lora.alpha"},
    {"lora_dropout", "lora.dropout"},
    {"lora_target", "lora.targets", kTargets},
    {"lora_targets", "lora.targets", kTargets},
    {"lora_target_modules", "lora.targets", kTargets},
    {"lora_modules", "lora.targets", kTargets},
    {"lora_attn_modules", "lora.targets", kTargets},
    {"apply_lora_to_mlp", "lora.targets", kTargets},
    {"target_modules", "lora.targets", kTargets},
    {"target_regex", "lora.targets", kTargets},
    {"all_linear", "lora.targets", kTargets},
    {"init_lora_weights", "lora.variant", "each variant begins in its own way"},
    {"init_weights", "lora.variant", "each variant begins in its own way"},
    {"loraplus_lr_ratio", "optim.lora_plus_ratio"},
    {"lorap_lr_ratio", "optim.lora_plus_ratio"},
    {"adapter_name_or_path", "lora.init_from"},
    {"adapter_path", "lora.init_from"},
    {"adapters", "lora.init_from"},
    {"resume_from_adapter", "lora.init_from"},
    {"resume_from_checkpoint", "lora.init_from",
     "for another run; lft train --resume continues this one"},
    // trained parts
    {"modules_to_save", "full", kFull},
    {"additional_target", "full", kFull},
    {"finetuning_type", "full", kFull},
    {"train_type", "full", kFull},
    {"tuner_type", "full", kFull},
    {"freeze_vit", "full", kFull},
    {"freeze_llm", "full", kFull},
    {"freeze_aligner", "full", kFull},
    {"freeze_backbone", "full", kFull},
    {"freeze_vision_tower", "full", kFull},
    {"freeze_language_model", "full", kFull},
    {"freeze_multi_modal_projector", "full", kFull},
    {"train_mm_proj_only", "full", "[projector]"},
    {"tune_mm_mlp_adapter", "full", "[projector]"},
    // data
    {"dataset", "data.train", "a file of rows"},
    {"datasets", "data.train", "a file of rows"},
    {"dataset_path", "data.train"},
    {"train_dataset", "data.train"},
    {"train_file", "data.train"},
    {"train_data", "data.train"},
    {"max_samples", "data.train", kFewer},
    {"max_train_samples", "data.train", kFewer},
    {"max_eval_samples", "data.eval", "a file with fewer rows"},
    {"data_path", "data.train"},
    {"data_files", "data.train"},
    {"val_dataset", "data.eval"},
    {"eval_dataset", "data.eval"},
    {"validation_file", "data.eval"},
    {"eval_file", "data.eval"},
    {"image_folder", "data.image_root"},
    {"image_dir", "data.image_root"},
    {"images_dir", "data.image_root"},
    {"media_dir", "data.image_root"},
    {"dataset_dir", "data.image_root", "rows name their images from there"},
    {"image_aspect_ratio", "data.image_fit", "pad or crop"},
    {"chat_template", "data.template"},
    {"prompt_template", "data.template"},
    {"conv_mode", "data.template"},
    {"template_type", "data.template"},
    {"cutoff_len", "data.max_tokens"},
    {"max_length", "data.max_tokens"},
    {"max_len", "data.max_tokens"},
    {"max_seq_len", "data.max_tokens"},
    {"max_seq_length", "data.max_tokens"},
    {"model_max_length", "data.max_tokens"},
    {"image_max_pixels", "data.max_pixels",
     "to which Qwen-VL, InternVL, SmolVLM and Idefics3 scale images; other families refuse them"},
    {"image_min_pixels", "data.min_pixels", "to which Qwen-VL scales smaller images"},
    {"dataset_shuffle", "data.shuffle"},
    {"train_dataloader_shuffle", "data.shuffle"},
    {"disable_shuffling", "data.shuffle", "false"},
    {"dataloader_num_workers", "data.workers"},
    {"preprocessing_num_workers", "data.workers"},
    {"dataset_num_proc", "data.workers"},
    {"num_workers", "data.workers"},
    {"num_proc", "data.workers"},
    // optimizer and schedule
    {"learning_rate", "optim.lr"},
    {"lora_lr", "optim.lr"},
    {"mm_projector_lr", "optim.projector_lr"},
    {"aligner_lr", "optim.projector_lr"},
    {"optimizer_name", "optim.name"},
    {"optimizer_type", "optim.name"},
    {"optim_name", "optim.name"},
    {"use_muon", "optim.name", "muon"},
    {"adam_beta1", "optim.betas", "both, as [0.9, 0.999]"},
    {"adam_beta2", "optim.betas", "both, as [0.9, 0.999]"},
    {"beta1", "optim.betas", "both, as [0.9, 0.999]"},
    {"beta2", "optim.betas", "both, as [0.9, 0.999]"},
    {"adam_epsilon", "optim.eps"},
    {"epsilon", "optim.eps"},
    {"max_grad_norm", "optim.clip_grad_norm"},
    {"gradient_clipping", "optim.clip_grad_norm"},
    {"grad_clip", "optim.clip_grad_norm"},
    {"lr_scheduler_type", "optim.schedule"},
    {"lr_scheduler", "optim.schedule"},
    {"scheduler", "optim.schedule"},
    {"warmup_steps", "optim.warmup_ratio", kShare},
    {"num_warmup_steps", "optim.warmup_ratio", kShare},
    {"lr_warmup_steps", "optim.warmup_ratio", kShare},
    {"lr_warmup_fraction", "optim.warmup_ratio", kShare},
    // precision
    {"bf16", "precision.compute", "bf16"},
    {"pure_bf16", "precision.compute", "bf16"},
    {"bf16_full_eval", "precision.compute", "bf16"},
    {"fp16", "precision.compute", "fp16"},
    {"fp32", "precision.compute", "fp32"},
    {"dtype", "precision.compute", kOnlyPrecision},
    {"mixed_precision", "precision.compute", kOnlyPrecision},
    // the run
    {"num_train_epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"n_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"train_iters", "train.max_steps", kOfTheRun},
    {"max_train_steps", "train.max_steps", kOfTheRun},
    {"max_steps_per_epoch", "train.max_steps", kOfTheRun},
    {"per_device_train_batch_size", "train.batch_size"},
    {"per_gpu_train_batch_size", "train.batch_size"},
    {"per_device_eval_batch_size", "train.batch_size", "evaluation takes the same"},
    {"train_batch_size", "train.batch_size"},
    {"eval_batch_size", "train.batch_size", "evaluation takes the same"},
    {"micro_batch_size", "train.batch_size"},
    {"gradient_accumulation_steps", "train.grad_accum"},
    {"gradient_accumulation", "train.grad_accum"},
    {"grad_accumulation_steps", "train.grad_accum"},
    {"accumulate_grad_batches", "train.grad_accum"},
    {"accumulation_steps", "train.grad_accum"},
    {"packing", "train.max_tokens_per_step", "a number of tokens"},
    {"neat_packing", "train.max_tokens_per_step", "a number of tokens"},
    {"packed", "train.max_tokens_per_step", "a number of tokens"},
    {"padding_free", "train.max_tokens_per_step", "a number of tokens"},
    {"gradient_checkpointing", "train.activation_checkpointing", "block"},
    {"enable_activation_checkpointing", "train.activation_checkpointing", "block"},
    {"disable_gradient_checkpointing", "train.activation_checkpointing", "none"},
    {"recompute_granularity", "train.activation_checkpointing", "block"},
    {"enable_activation_offloading", "train.activation_offload"},
    {"data_seed", "train.seed"},
    {"random_seed", "train.seed"},
    {"full_determinism", "train.deterministic"},
    {"eval_steps", "train.eval_every_steps", kEverySteps},
    {"eval_strategy", "train.eval_every_steps", kEverySteps},
    {"evaluation_strategy", "train.eval_every_steps", kEverySteps},
    {"eval_interval", "train.eval_every_steps", kEverySteps},
    {"run_val_every_n_steps", "train.eval_every_steps", kEverySteps},
    // outputs
    {"save_dir", "output_dir"},
    {"save_path", "output_dir"},
    {"out_dir", "output_dir"},
    {"output", "output_dir"},
    {"output_path", "output_dir"},
    {"logging_dir", "output_dir"},
    {"overwrite_output_dir", "output_dir", "each run has a new one"},
    {"save_steps", "checkpoint.every_steps"},
    {"save_strategy", "checkpoint.every_steps", "a number of steps"},
    {"save_interval", "checkpoint.every_steps"},
    {"save_total_limit", "checkpoint.keep"},
    {"logging_steps", "log.every_steps"},
    {"log_every_n_steps", "log.every_steps"},
    {"logging_strategy", "log.every_steps", "a number of steps"},
    {"report_to", "log.tensorboard", "true or false"},
    // the start and end of a run
    {"val_size", "data.eval_share", "a share of data.train"},
    {"split_dataset_ratio", "data.eval_share", "a share of data.train"},
    {"load_best_model_at_end", "train.keep_best", "eval_loss"},
    {"early_stopping_patience", "train.patience", "evaluations"},
    {"early_stopping_steps", "train.patience", "evaluations"},
    {"neftune_noise_alpha", "optim.neftune_alpha"},
    {"vit_lr", "optim.vision_lr"},
    {"vision_tower_lr", "optim.vision_lr"},
    {"global_batch_size", "train.global_batch", "with train.grad_accum: auto"},
    {"min_lr", "optim.min_lr_ratio", "a share of optim.lr"},
    {"min_lr_rate", "optim.min_lr_ratio"},
});

}  // namespace

std::span<const ForeignName> foreign_names() { return kNames; }

std::string lft_name(const std::string& path) {
  std::string name = path.substr(path.rfind('.') + 1);  // npos + 1 is 0
  std::ranges::replace(name, '-', '_');
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  for (const std::string& variant : lora::variant_names()) {
    if (name == "use_" + variant || name == variant + "_init") return "lora.variant, " + variant;
  }
  const auto found =
      std::ranges::find_if(kNames, [&](const ForeignName& each) { return name == each.name; });
  if (found == kNames.end()) return "";
  return found->field + (*found->note == '\0' ? "" : std::string(", ") + found->note);
}

}  // namespace lft::recipe
