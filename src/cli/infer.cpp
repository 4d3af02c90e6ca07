#include "src/cli/infer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/hf/adapter/model_files.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/recipe/recipe.h"
#include "src/recipe/shipped.h"
#include "src/text/chat/template_files.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"

namespace lft::cli {
namespace {

std::string setting_text(const std::string& setting) { return setting; }
std::string setting_text(int64_t pixels) {
  return pixels > 0 ? std::to_string(pixels) : "the model's own";
}

/// The value of a setting and its source, of four possible sources.
template <class Value>
struct Choice {
  Value value;
  std::string why = "the default";

  Choice(const Value& asked, const Value& by_adapter, const Value& by_model, const Value& of_recipe,
         const Value& own)
      : value(own) {
    const bool of_adapter = family::is_set(by_adapter);
    const Value& recorded = of_adapter ? by_adapter : by_model;
    const std::string by = of_adapter ? "the adapter" : "the model";
    if (family::is_set(asked)) {
      value = asked;
      why = "as asked";
      if (family::is_set(recorded) && recorded != asked)
        why += "; " + by + " was trained with " + setting_text(recorded);
    } else if (family::is_set(recorded)) {
      value = recorded;
      why = "from " + by;
      if (family::is_set(of_recipe) && recorded != of_recipe)
        why += "; the recipe says " + setting_text(of_recipe);
    } else if (family::is_set(of_recipe)) {
      value = of_recipe;
      why = "from the recipe";
    }
  }
};

/// Prints which settings are used and why: always template and image fit, the others if they are
/// set.
family::InputSettings choose_settings(const InferOptions& options,
                                      const family::InputSettings& by_adapter,
                                      const family::InputSettings& by_model, bool has_template,
                                      const family::FamilyDefaults& defaults) {
  const family::InputSettings own{.template_name = has_template ? "auto" : defaults.template_name,
                                  .image_fit = defaults.image_fit,
                                  .special_tokens = "text",
                                  .alpha = "drop",
                                  .template_date = recipe::Recipe().data.template_date};
  family::InputSettings chosen;
  std::vector<std::string> said;
  family::for_each_setting([&](std::string name, auto member) {
    const Choice choice(options.asked.*member, by_adapter.*member, by_model.*member,
                        options.of_recipe.*member, own.*member);
    chosen.*member = choice.value;
    const bool always = name == "template" || name == "image_fit";
    std::ranges::replace(name, '_', ' ');
    const std::string text = setting_text(choice.value);
    const bool disagrees = choice.why.find(';') != std::string::npos;
    if (always || disagrees || setting_text(own.*member) != text)
      said.push_back(name + ": " + text + " (" + choice.why + ")");
  });
  notice(join(said));
  return chosen;
}

/// The first line in which two templates differ: "line 3 is "a", and "b" there".
std::string first_difference(const std::string& own, const std::string& other) {
  std::istringstream a(own), b(other);
  for (int64_t line = 1;; ++line) {
    std::string left, right;
    const bool more_left = static_cast<bool>(std::getline(a, left)),
               more_right = static_cast<bool>(std::getline(b, right));
    if (!more_left && !more_right) return "they differ in how their lines end";
    if (left != right || more_left != more_right)
      return "its line " + std::to_string(line) + " is " + quote_text(left, 80) +
             ", the adapter's " + quote_text(right, 80);
  }
}

/// An adapter is used with its own template. Reports how the checkpoint's differs.
void report_other_template(const hf::AdapterNotes& adapter,
                           const std::optional<text::TemplateText>& own, const std::string& used) {
  const bool is_used = !adapter.chat_template.empty() && used == adapter.input.template_name;
  if (!is_used || !own || own->text == adapter.chat_template) return;
  notice("the checkpoint's chat template (" + own->where +
         ") is not the adapter's, which is used: " +
         first_difference(own->text, adapter.chat_template));
}

/// A model directory: the path itself, a bundled one, or a run's.
std::string model_named(const std::string& given) {
  return io::model_folder(recipe::resolve_bundled_path(given));
}

}  // namespace

void add_infer_options(Command& command, InferOptions& options,
                       std::vector<std::string>* adapters) {
  command.option("RUN", options.target,
                 "a run's folder, an adapter, a model directory or a recipe (a file, or the name "
                 "of a bundled one)");
  command
      .option("--model", options.model,
              "model directory in HF layout (default: the base that the adapter records)")
      .meaning(model_named);
  if (adapters == nullptr) {
    command
        .option("--adapter", options.adapter,
                "PEFT adapter directory, a run's folder, or the recipe of a run")
        .meaning(io::adapter_folder);
  } else {
    command
        .option("--adapter", *adapters,
                "PEFT adapter directory, a run's folder, or the recipe of a run; NAME=DIR, which "
                "may be repeated: the base and all adapters are served, chosen by the request's "
                "model")
        .one_each();
  }
  command.option("--template", options.asked.template_name,
                 "chat template: auto (the checkpoint's), a name or a Jinja file (default: the "
                 "adapter's or the model's, otherwise auto)");
  command.option(
      "--image-fit", options.asked.image_fit,
      "pad, crop or native (default: the adapter's or the model's, otherwise the family's)");
  command.option("--alpha", options.asked.alpha,
                 "drop, or white: composite transparency on white (default: the adapter's or the "
                 "model's, otherwise drop)");
  command
      .option("--min-pixels", options.asked.min_pixels,
              "native: scale smaller images up to this number of pixels; 0: the model's default "
              "(default: the adapter's)")
      .range(0, 1 << 28);
  command
      .option("--max-pixels", options.asked.max_pixels,
              "native: scale larger images down to this number of pixels; 0: the model's default "
              "(default: the adapter's)")
      .range(0, 1 << 28);
  command.option("--dtype", options.dtype,
                 "storage and compute dtype: fp32, bf16 or fp16 (default: fp32 on a CPU; on a GPU "
                 "bf16 or fp16 if it is fast)");
}

void add_decode_options(Command& command, DecodeOptions& options) {
  command
      .option("--max-new-tokens", options.generate.max_new_tokens,
              "maximum number of tokens in an answer")
      .show_default()
      .range(1, 1 << 20);
  command
      .option("--temperature", options.generate.temperature,
              "sampling temperature; 0: greedy decoding")
      .show_default()
      .real_range(0.0, 100.0);
  command
      .option("--top-k", options.generate.top_k,
              "sample from this number of most likely tokens; 0: all")
      .show_default()
      .range(0, 1 << 24);
  command
      .option("--top-p", options.generate.top_p,
              "nucleus sampling: smallest set of tokens with this total probability")
      .show_default()
      .real_range(1e-6, 1.0);
  command
      .option("--repetition-penalty", options.generate.repetition_penalty,
              "above 1: tokens in the prompt and in the answer so far become less likely")
      .show_default()
      .real_range(1e-3, 1e3);
  command.option("--stop", options.stop, "text that ends an answer; may be repeated").one_each();
  command.option("--seed", options.generate.seed, "random seed of sampling").show_default();
}

train::Precision infer_precision(const std::string& asked, const train::DeviceFacts& facts) {
  if (asked.empty()) return train::choose_precision(facts.gpu ? "auto" : "fp32", facts, "--dtype");
  if (asked != "fp32" && asked != "bf16" && asked != "fp16") {  // auto is for recipes
    refuse(ErrorKind::kUsage, "unknown dtype", "--dtype", quote_text(asked), "fp32, bf16 or fp16");
  }
  return train::choose_precision(asked, facts, "--dtype");
}

hf::ModelDir open_infer_base(const InferOptions& options, InferModel& out) {
  out.device = train::default_device();
  if (options.model.empty()) {
    refuse(ErrorKind::kUsage, "no model", {}, {},
           "a run's folder, an adapter, a model directory or a recipe",
           "name one of them; lft runs lists the runs below a folder");
  }
  const train::Precision precision =
      infer_precision(options.dtype, train::device_facts(out.device));
  if (!precision.notice.empty()) notice(precision.notice);
  if (options.dtype.empty() && precision.compute != at::kFloat)
    notice("dtype: " + train::compute_name(precision.compute) + " (the default here)");
  out.dtype = precision.compute;
  return hf::ModelDir::open(options.model);
}

hf::AdapterDir open_infer_adapter(const std::string& path, const hf::ModelDir& base) {
  hf::AdapterDir adapter = hf::AdapterDir::open(path);
  hf::check_adapter_base(adapter, base);
  hf::warn_of_missing_layers(adapter, base.config);
  return adapter;
}

data::EncodeOptions infer_encode(const InferOptions& options, const hf::ModelDir& base,
                                 const hf::AdapterDir& adapter, const text::Tokenizer& tokenizer) {
  const std::optional<text::TemplateText> own_template = text::find_template(base.path);
  const family::InputSettings settings = choose_settings(
      options, adapter.notes.input, hf::read_model_notes(base.path).input, own_template.has_value(),
      base.config.family->defaults(base.config, hf::image_processor_json(base.path)));
  report_other_template(adapter.notes, own_template, settings.template_name);
  std::string lowered;
  data::EncodeOptions encode =
      data::encode_options(options.model, base.config, tokenizer,
                           {.settings = settings, .max_tokens = options.max_tokens}, &lowered);
  if (!lowered.empty()) notice(lowered);
  hf::check_adapter_tokenizer(adapter, encode.tokenizer_parts);
  hf::check_model_tokenizer(base.path, encode.tokenizer_parts);
  const io::Alpha alpha = encode.image_limits.alpha;
  encode.image_limits = options.image_limits;
  encode.image_limits.alpha = alpha;
  encode.count_unknown = options.count_unknown;
  encode.count_marks = options.count_marks;
  encode.columns = options.columns;
  encode.skip_bad = options.skip_bad;
  if (options.skip_bad) encode.max_bad = options.max_bad;
  return encode;
}

InferModel load_infer_model(const InferOptions& options) {
  InferModel out;
  hf::ModelDir base = open_infer_base(options, out);
  hf::AdapterDir adapter;
  if (!options.adapter.empty()) {
    adapter = open_infer_adapter(options.adapter, base);
    if (hf::untie(adapter, base)) {
      notice(
          "the base ties LM head and embedding, the adapter changes one without the other: they "
          "are two tensors here, as in PEFT");
    }
  }
  notice("model: " + options.model +
         ", adapter: " + (options.adapter.empty() ? "none" : options.adapter));
  out.tokenizer = text::Tokenizer::load(options.model);
  out.encode = infer_encode(options, base, adapter, *out.tokenizer);
  out.model = hf::load_model(base, out.dtype, out.device);
  if (!options.adapter.empty()) hf::load_adapter(out.model, adapter);
  lora::keep_shadows(*out.model, out.dtype);
  out.model->eval();
  if (out.device.is_cpu()) train::keep_freed_memory();
  return out;
}

OutputLines::OutputLines(const std::string& path, const Inputs& inputs)
    : path_(io::absolute_path(path)) {
  refuse_input("--out", path, inputs);
  if (io::is_directory(path_)) {
    refuse(ErrorKind::kUsage, "the output is a directory", "--out " + path, {}, "a file",
           "name a file in it");
  }
  file_ = io::FileHandle::open_stream(path);
  if (file_.is_open()) return;
  temporary_ = path_ + ".tmp-" + std::to_string(getpid());
  file_ = io::FileHandle::create(temporary_, 0);
}

OutputLines::~OutputLines() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputLines::line(std::string_view text) {
  buffer_.append(text);
  buffer_ += '\n';
  if (buffer_.size() >= 1u << 16) flush();
}

void OutputLines::flush() {
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputLines::commit() {
  flush();
  if (!temporary_.empty()) {
    file_.sync();
    io::rename_synced(temporary_, path_);
    temporary_.clear();
  }
  file_.close();
}

}  // namespace lft::cli
