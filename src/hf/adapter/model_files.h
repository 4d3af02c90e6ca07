// The files of a whole model in addition to its weights: those of the base, with the settings of
// the training.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"
#include "src/io/json.h"

namespace lft::hf {

/// Copies tokenizer, processor, generation and licence files from the model folder `from` to `to`.
/// If the notes record a template, the copies use it, so that transformers and servers build the
/// same prompts as lft: chat_template.jinja replaces the templates of the base, and the image
/// processor's file gets the fit; lft_model.json is written.
void write_model_files(const std::string& from, const std::string& to,
                       const family::ModelConfig& config, const AdapterNotes& notes);

/// The chat template in the notes as Jinja; empty if they record none. `marker` as in
/// named_form_jinja().
std::string jinja_of(const AdapterNotes& notes, const family::ModelConfig& config,
                     const std::string& marker = "");

/// The image processor part of a model folder, from either of its files; an empty object if there
/// is none.
io::Json image_processor_json(const std::string& dir);

}  // namespace lft::hf
