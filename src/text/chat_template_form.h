// The pieces of text that a template is made of, as plain data, for what renders it or writes it
// down. No rendering.
#pragma once
#include <string>

namespace lft::text {

/// What stands around a question and its answer.
struct TemplateForm {
  const char* name;
  const char* system = "";        // before the first turn, where a row has none of its own
  const char* system_role = "";   // before a system text, where there is one
  const char* system_after = "";  // after it
  const char* begin = "";         // of every text
  const char* question = "";      // before the question
  const char* before_text = "";   // and this, unless the question begins with an image
  const char* answer = "";        // between question and answer, never supervised
  const char* space = "";         // before the answer, supervised with it
  const char* end = "";           // of an answer, supervised; empty: the tokenizer's end token
  const char* after = "";         // after that, not supervised
  const char* separator = "";     // between turns
  bool takes_system = true;       // a row's system text has a place
  bool system_in_turn = false;    // within the first question, not before it
  bool trims = false;             // of each text of a turn only what is between its white space
  const char* decoder = "";       // the model_type of the only decoders that are asked with it
};

/// Throws kUsage for a name that no template has, naming those there are.
const TemplateForm& template_form(const std::string& name);

}  // namespace lft::text
