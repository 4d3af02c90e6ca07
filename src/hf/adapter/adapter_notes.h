// The notes of an adapter or a model: reading, writing and checks against them.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Empty strings where the model directory is not lft's.
AdapterNotes read_model_notes(const std::string& model_path);

/// How `base` with the adapter on it was trained: as the adapter records it, or else the base.
AdapterNotes training_notes(const AdapterDir& dir, const ModelDir& base);

/// The same of another tokenizer than the one with these parts, naming what differs.
void check_adapter_tokenizer(const AdapterDir& dir, const text::TokenizerParts& parts);

/// The same of a model that records what it was trained with.
void check_model_tokenizer(const std::string& model_path, const text::TokenizerParts& parts);

/// The file's text.
std::string notes_text(const AdapterNotes& notes);

/// chat_template.jinja, where the notes have one.
void write_chat_template(const std::string& folder, const AdapterNotes& notes);

/// Empty strings where there is no such file.
AdapterNotes read_notes(const std::string& file);

}  // namespace lft::hf
