// What other fine-tuning tools (LLaMA-Factory, ms-swift, torchtune, LLaVA, transformers, PEFT) call
// a field of the recipe: for messages alone, no foreign name is ever read as a field.
#pragma once
#include <span>
#include <string>

namespace lft::recipe {

struct ForeignName {
  const char* name;       // in lower case, words joined by "_"
  const char* field;      // lft's
  const char* note = "";  // what to write there, where that is another thing
};
std::span<const ForeignName> foreign_names();

/// "lora.rank", or "precision.compute, bf16", for the last part of a dotted path in any spelling of
/// case and dashes; empty where no tool has that name.
std::string lft_name(const std::string& path);

}  // namespace lft::recipe
