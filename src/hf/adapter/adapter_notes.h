// The notes of an adapter or a model: reading, writing and checks against them.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// The notes of a model directory; empty if lft did not write it.
AdapterNotes read_model_notes(const std::string& model_path);

/// The notes of the adapter, or else those of the base.
AdapterNotes training_notes(const AdapterDir& dir, const ModelDir& base);

/// Throws kInput if the adapter records another tokenizer than the one with these parts, and names
/// the differences.
void check_adapter_tokenizer(const AdapterDir& dir, const text::TokenizerParts& parts);

/// The same for a model that records its tokenizer.
void check_model_tokenizer(const std::string& model_path, const text::TokenizerParts& parts);

/// The contents of the notes file.
std::string notes_text(const AdapterNotes& notes);

/// Writes chat_template.jinja if the notes have a template.
void write_chat_template(const std::string& folder, const AdapterNotes& notes);

/// Reads notes; empty if there is no such file.
AdapterNotes read_notes(const std::string& file);

}  // namespace lft::hf
