// The files beside a whole model's weights: the base's, and what of them says how the model was
// trained. No weights.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"
#include "src/io/json.h"

namespace lft::hf {

/// Copies tokenizer, processor, generation and licence files from the model folder `from` to `to`.
/// Where the notes record a template, the copies say it too, so that transformers and servers ask
/// as lft does without being told: chat_template.jinja in place of any template of the base, the
/// image processor's file with the fit, and lft_model.json.
void write_model_files(const std::string& from, const std::string& to,
                       const family::ModelConfig& config, const AdapterNotes& notes);

/// The chat template that the notes record, as Jinja; empty where they record none. `marker` as
/// named_form_jinja() takes it.
std::string jinja_of(const AdapterNotes& notes, const family::ModelConfig& config,
                     const std::string& marker = "");

/// What a model's folder says of its image processor, from either of its files; an empty object
/// where it says nothing.
io::Json image_processor_json(const std::string& dir);

}  // namespace lft::hf
