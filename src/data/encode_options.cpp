#include "src/data/encode_options.h"

#include <algorithm>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/text/chat/family_templates.h"
#include "src/text/chat/jinja_template.h"
#include "src/text/chat/named_form.h"
#include "src/text/tokenizer_parts.h"

namespace lft::data {
namespace {

constexpr char kAlphaWhite[] = "white";
constexpr char kItsOwnFile[] = "take the file that came with the model";

/// The image processor's settings and the file that contains them: processor_config.json
/// (transformers 5), or preprocessor_config.json. Null if there is neither.
io::Json image_processor(const std::string& model_dir, std::string* where) {
  *where = model_dir + "/processor_config.json";
  if (io::path_exists(*where)) {
    const io::Json processor = io::read_json_file(*where);
    if (processor.is_object() && processor.contains("image_processor"))
      return processor["image_processor"];
  }
  *where = model_dir + "/preprocessor_config.json";
  return io::path_exists(*where) ? io::read_json_file(*where) : io::Json();
}

std::string end_token(const std::string& model_dir, const family::ModelConfig& config,
                      const text::Tokenizer& tokenizer) {
  const std::string path = model_dir + "/tokenizer_config.json";
  std::string eos;
  if (io::path_exists(path)) {
    const io::Json file = io::read_json_file(path);
    const io::Json token = file.is_object() ? file.value("eos_token", io::Json()) : io::Json();
    if (token.is_string()) eos = token.get<std::string>();
    if (token.is_object() && token.contains("content") && token["content"].is_string())
      eos = token["content"].get<std::string>();
  }
  if (eos.empty() && !config.eos_tokens.empty() && config.eos_tokens[0] < tokenizer.vocab_size())
    eos = tokenizer.token_of(config.eos_tokens[0]);
  if (eos.empty() || tokenizer.id_of(eos) < 0) {
    refuse(ErrorKind::kInput, "the tokenizer has no end token", path,
           eos.empty() ? "no eos_token" : quote_text(eos), "eos_token, a token of the vocabulary",
           kItsOwnFile);
  }
  return eos;
}

void check_tokenizer(const std::string& model_dir, const family::ModelConfig& config,
                     const text::Tokenizer& tokenizer, const std::string& mark) {
  const int64_t id = tokenizer.id_of(mark);
  if (id != config.image_token) {
    refuse(ErrorKind::kInput, "the tokenizer's " + mark + " is not the model's image token",
           model_dir,
           id < 0 ? "no " + mark + " in the tokenizer" : mark + " has id " + std::to_string(id),
           "image_token_index " + std::to_string(config.image_token) + " (config.json)",
           "use the tokenizer that belongs to the model");
  }
  if (tokenizer.vocab_size() > config.text.vocab) {
    refuse(ErrorKind::kInput, "the tokenizer has ids beyond the model's embedding rows", model_dir,
           "ids up to " + std::to_string(tokenizer.vocab_size() - 1),
           "below vocab_size " + std::to_string(config.text.vocab),
           "use the tokenizer that belongs to the model");
  }
}

/// kUsage unless `name` is a known name or looks like a file.
void check_template(const std::string& name) {
  const std::vector<std::string> names = template_names();
  if (name.empty() || name == "auto" || std::ranges::find(names, name) != names.end() ||
      name.find_first_of("./") != std::string::npos || io::path_exists(name))
    return;
  refuse(ErrorKind::kUsage, "unknown template", "data.template", quote_text(name),
         "auto, the path of a Jinja file, or one of " + join(names));
}

void check_names(const EncodeRules& rules) {
  check_template(rules.settings.template_name);
  const std::string& alpha = rules.settings.alpha;
  if (!alpha.empty() && alpha != "drop" && alpha != kAlphaWhite)
    refuse(ErrorKind::kUsage, "unknown treatment of transparency", "data.alpha", quote_text(alpha),
           "drop or white");
}

SpecialTokensInText special_tokens(const std::string& name) {
  return name == "error"  ? SpecialTokensInText::kError
         : name == "text" ? SpecialTokensInText::kText
                          : SpecialTokensInText::kSpecial;
}

io::Json arguments(const std::string& text) {
  if (text.empty()) return io::Json::object();
  io::Json args = io::parse_json(text, "data.template_args");
  for (const char* own : {"messages", "add_generation_prompt", "tools"}) {
    if (args.is_object() && !args.contains(own)) continue;
    refuse(ErrorKind::kUsage, "a variable that the template is given anyway", "data.template_args",
           quote_text(own, 40), "other names, as {enable_thinking: false}");
  }
  return args;
}

/// The tokens that may end a turn; the first one is the one to append.
std::vector<std::string> end_tokens(const std::string& eos, const family::ModelConfig& config,
                                    const text::Tokenizer& tokenizer) {
  std::vector<std::string> ends = {eos};
  for (const int64_t id : config.eos_tokens) {
    const std::string token = tokenizer.token_of(id);
    if (!token.empty() && std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  }
  return ends;
}

/// The Jinja template that the setting names.
text::TemplateText named_or_file(const std::string& name, const family::Family& family) {
  if (auto found = text::family_template(name, family.processor_mark)) return *found;
  return text::read_template(name);
}

}  // namespace

std::vector<std::string> template_names() {
  std::vector<std::string> names = text::named_forms();
  for (const std::string& name : text::family_template_names()) names.push_back(name);
  return names;
}

std::shared_ptr<const text::ChatTemplate> choose_chat(const std::string& model_dir,
                                                      const family::ModelConfig& config,
                                                      const text::Tokenizer& tokenizer,
                                                      const family::InputSettings& settings,
                                                      const std::string& eos,
                                                      std::vector<std::string>& notices) {
  const family::Family& family = *config.family;
  const bool is_auto = settings.template_name.empty() || settings.template_name == "auto";
  std::string name = settings.template_name;
  std::optional<text::TemplateText> source;
  if (is_auto) source = text::find_template(model_dir);
  const bool is_of_texts =
      source && family.writes_prompts && source->text.find(family.placeholder) == std::string::npos;
  if (is_of_texts) source.reset();
  if (is_auto && !source) {
    name = family.defaults(config, io::Json::object()).template_name;
    notices.push_back((is_of_texts ? "the checkpoint's chat template writes no image"
                                   : "the checkpoint has no chat template") +
                      (": data.template " + name) + ", as " + family.name + " is used");
  }
  if (!source && text::is_named_form(name))
    return text::named_form(name, eos, family.processor_mark);
  if (!source) source = named_or_file(name, family);
  auto chat = text::jinja_template(*source, tokenizer,
                                   {.ends = end_tokens(eos, config, tokenizer),
                                    .placeholder = family.placeholder,
                                    .args = arguments(settings.template_args),
                                    .date = settings.template_date});
  for (const std::string& note : chat->notes()) notices.push_back(note);
  return chat;
}

EncodeOptions encode_options(const std::string& model_dir, const family::ModelConfig& config,
                             const text::Tokenizer& tokenizer, const EncodeRules& rules,
                             std::string* notice) {
  check_names(rules);
  EncodeOptions options;
  options.config = config;
  options.image_fit = rules.settings.image_fit;
  options.special_tokens = special_tokens(rules.settings.special_tokens);
  if (rules.settings.alpha == kAlphaWhite) options.image_limits.alpha = io::Alpha::kWhite;
  std::vector<std::string> notices;
  std::string where;
  const io::Json processor = image_processor(model_dir, &where);
  if (!processor.is_null() && !processor.is_object())
    refuse(ErrorKind::kInput, "the image processor is not a JSON object", where,
           processor.type_name(), "an object", kItsOwnFile);
  const io::Json numbers = processor.is_null() ? io::Json::object() : processor;
  options.images =
      config.family->image_processor(config, {.json = numbers, .where = where, .folder = model_dir},
                                     family::image_rules(rules.settings), &notices);
  check_tokenizer(model_dir, config, tokenizer, options.images->token());
  options.chat = choose_chat(model_dir, config, tokenizer, rules.settings,
                             end_token(model_dir, config, tokenizer), notices);
  options.eos = options.chat->end();
  options.config.eos_tokens.push_back(
      tokenizer.id_of(options.eos));  // a model trained to end with this token stops at it
  options.tokenizer_parts = text::tokenizer_parts(tokenizer);
  options.tokenizer_fingerprint = text::tokenizer_fingerprint(options.tokenizer_parts);
  options.max_tokens = std::min(rules.max_tokens, config.text.max_positions);
  if (options.max_tokens < rules.max_tokens) {
    notices.push_back("data.max_tokens lowered from " + std::to_string(rules.max_tokens) + " to " +
                      std::to_string(options.max_tokens) + ", the model's positions");
  }
  if (notice) *notice = join(notices, "; ");
  return options;
}

}  // namespace lft::data
