// The notes of an adapter or a model: reading, writing and checks against them.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// The notes of a model directory; empty if lft did not write it.
AdapterNotes read_model_notes(const std::string& model_path);

/// The notes of the adapter, or else those of the base, with the adapter's template if it has one.
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

/// Reads notes. Without such a file only the template is known, if the folder is an adapter of
/// another program that saved one; otherwise the notes are empty.
AdapterNotes read_notes(const std::string& file);

}  // namespace lft::hf
