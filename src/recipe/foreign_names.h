// Names of recipe fields in other fine-tuning tools (LLaMA-Factory, ms-swift, torchtune, LLaVA,
// transformers, PEFT). Only for messages: such a name is never read as a field.
#pragma once
#include <span>
#include <string>

namespace lft::recipe {

struct ForeignName {
  const char* name;       // in lower case, words joined by "_"
  const char* field;      // lft's
  const char* note = "";  // the value to use, if it differs
};
std::span<const ForeignName> foreign_names();

/// "lora.rank", or "precision.compute, bf16", for the last part of a dotted path in any spelling of
/// case and dashes; empty if no tool has that name.
std::string lft_name(const std::string& path);

}  // namespace lft::recipe
