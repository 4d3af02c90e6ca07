// The options for converting rows of a data set to samples of a model: rules of the recipe and
// numbers from the model's files.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/family/input_settings.h"
#include "src/data/reading_budget.h"
#include "src/data/rows/column_rules.h"
#include "src/io/image_header.h"
#include "src/text/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace lft::data {

/// The recipe's rules for encoding rows.
struct EncodeRules {
  family::InputSettings settings = {};
  int64_t max_tokens = 2048;
};

/// The treatment of a special token in the words of a row: as an error, as plain text, or as the
/// token, like in HF tokenizers.
enum class SpecialTokensInText { kError, kText, kSpecial };

/// The options for encoding. All numbers come from the model, never from processor defaults.
struct EncodeOptions {
  family::ModelConfig config;
  std::shared_ptr<const text::ChatTemplate> chat;
  std::string image_fit = "pad";
  int64_t max_tokens = 2048;
  std::shared_ptr<const family::ImageProcessor> images;  // the model's, with image_fit applied
  std::string eos = "</s>";
  text::TokenizerParts tokenizer_parts;
  std::string tokenizer_fingerprint;  // fingerprint of these parts; prepared data with another
                                      // tokenizer is refused
  bool skip_bad = false;  // on_bad_sample: skip. A malformed row is then an error of get(), not of
                          // open_dataset()
  int64_t max_bad = std::numeric_limits<int64_t>::max();  // maximum of skip_bad
  SpecialTokensInText special_tokens = SpecialTokensInText::kSpecial;
  bool count_unknown = false;   // unknown_keys: warn. Otherwise a key that is not used is an error
  bool count_marks = false;     // marks of other tools in texts are counted, otherwise an error
  ColumnRules columns = {};     // data.columns
  bool pairs = false;           // rows are pairs of answers, for an objective of pairs
  bool share_prompts = false;   // of pairs: packed passes, with shared_prompt() computed once
  bool labelled = false;        // rows have a label of their answer, for KTO
  bool open_questions = false;  // a row may end with a question, which is asked but not trained on
  io::ImageLimits image_limits;
  std::shared_ptr<ReadingBudget> reading = {};  // for decoding threads; null: no limit
};

/// Reads mean and std (preprocessor_config.json or processor_config.json), the end token
/// (tokenizer_config.json) and the chat template; lowers max_tokens to the model's positions, which
/// *notice then reports.
EncodeOptions encode_options(const std::string& model_dir, const family::ModelConfig& config,
                             const text::Tokenizer& tokenizer, const EncodeRules& rules,
                             std::string* notice);

/// The names that data.template and --template accept in addition to files.
std::vector<std::string> template_names();

/// "auto": the chat template of the checkpoint, otherwise the family's own by name, which
/// `notices` reports. A name: LLaVA's form or a family's template. Anything else: a Jinja file.
/// `eos` ends an answer if the template has no end token. kUsage for a bad setting, kInput for a
/// bad template.
std::shared_ptr<const text::ChatTemplate> choose_chat(const std::string& model_dir,
                                                      const family::ModelConfig& config,
                                                      const text::Tokenizer& tokenizer,
                                                      const family::InputSettings& settings,
                                                      const std::string& eos,
                                                      std::vector<std::string>& notices);

}  // namespace lft::data
