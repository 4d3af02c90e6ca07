// What a model directory says about turning rows into samples: processor numbers, end token, image
// token, limits.
#include <cmath>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/text/chat_template.h"
#include "src/text/tokenizer_parts.h"

namespace lft::data {
namespace {

const std::vector<float> kClipMean = {0.48145466f, 0.4578275f, 0.40821073f};
const std::vector<float> kClipStd = {0.26862954f, 0.26130258f, 0.27577711f};
constexpr int64_t kBicubic = 3;
constexpr char kItsOwnFile[] = "take the file that came with the model";
constexpr char kNoOtherWay[] =
    "write that where it suits the model: lft has no other way to fit an image";

/// The image processor's object and the file it stands in: nested in processor_config.json
/// (transformers 5) before preprocessor_config.json. Null where there is neither.
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

std::vector<float> three_numbers(const io::Json& processor, const char* key,
                                 const std::vector<float>& fallback, bool positive,
                                 const std::string& where) {
  if (!processor.contains(key) || processor[key].is_null()) return fallback;
  std::vector<float> numbers;
  for (const io::Json& item : processor[key]) {
    const float number = item.is_number() ? item.get<float>() : NAN;
    if (!(number >= (positive ? 1e-6f : 0.0f) && number <= 1)) {
      refuse(ErrorKind::kInput, std::string(key) + " is out of range", where, item.dump(),
             positive ? "numbers above 0, at most 1" : "numbers from 0 to 1", kItsOwnFile);
    }
    numbers.push_back(number);
  }
  if (numbers.size() != 3)
    refuse(ErrorKind::kInput, std::string(key) + " is not a colour", where, processor[key].dump(),
           "3 numbers", kItsOwnFile);
  return numbers;
}

/// Steps lft always does as CLIP's processor does them; a file that asks for others is refused.
void check_steps(const io::Json& processor, const std::string& where) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_center_crop"}) {
    if (processor.value(key, io::Json(true)) == io::Json(false))
      refuse(ErrorKind::kInput, std::string(key) + " is false", where, "false", "true",
             kNoOtherWay);
  }
  const io::Json resample = processor.value("resample", io::Json(kBicubic));
  if (!resample.is_null() && resample != io::Json(kBicubic))
    refuse(ErrorKind::kInput, "resample is not bicubic", where, resample.dump(), "3", kNoOtherWay);
  const io::Json factor = processor.value("rescale_factor", io::Json(1.0 / 255));
  if (!factor.is_null() &&
      !(factor.is_number() && std::abs(factor.get<double>() * 255 - 1) < 1e-6)) {
    refuse(ErrorKind::kInput, "rescale_factor is not 1/255", where, factor.dump(),
           "0.00392156862745098", kNoOtherWay);
  }
}

/// The processor's square must be the vision tower's. `key` is crop_size or size; an object or a
/// bare number.
void check_square(const io::Json& processor, const char* key, int64_t size,
                  const std::string& where) {
  const io::Json value = processor.value(key, io::Json());
  const std::vector<io::Json> sides =
      value.is_object() ? std::vector<io::Json>{value.value("shortest_edge", io::Json()),
                                                value.value("height", io::Json()),
                                                value.value("width", io::Json())}
                        : std::vector<io::Json>{value};
  for (const io::Json& side : sides) {
    if (side.is_null() || side == io::Json(size)) continue;
    refuse(ErrorKind::kInput,
           std::string("the processor's ") + key + " is not the model's image_size", where,
           std::string(key) + " " + value.dump(),
           "vision_config.image_size " + std::to_string(size),
           "the two files do not belong together; take the processor file of this model");
  }
}

std::string end_token(const std::string& model_dir, const llava::LlavaConfig& config,
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

void check_tokenizer(const std::string& model_dir, const llava::LlavaConfig& config,
                     const text::Tokenizer& tokenizer) {
  const int64_t id = tokenizer.id_of("<image>");
  if (id != config.image_token) {
    refuse(ErrorKind::kInput, "the tokenizer's <image> is not the model's image token", model_dir,
           id < 0 ? "no <image> in the tokenizer" : "<image> has id " + std::to_string(id),
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

void check_names(const EncodeRules& rules) {
  if (!text::is_template(rules.template_name)) {
    refuse(ErrorKind::kUsage, "unknown template", "data.template", quote_text(rules.template_name),
           join(text::template_names()));
  }
  if (rules.image_fit != "pad" && rules.image_fit != "crop") {
    refuse(ErrorKind::kUsage, "unknown image fit", "data.image_fit", quote_text(rules.image_fit),
           "pad or crop");
  }
}

}  // namespace

EncodeOptions encode_options(const std::string& model_dir, const llava::LlavaConfig& config,
                             const text::Tokenizer& tokenizer, const EncodeRules& rules,
                             std::string* notice) {
  check_names(rules);
  check_tokenizer(model_dir, config, tokenizer);
  EncodeOptions options;
  options.config = config;
  options.template_name = rules.template_name;
  options.image_fit = rules.image_fit;
  options.eos = end_token(model_dir, config, tokenizer);
  options.config.eos_tokens.push_back(
      tokenizer.id_of(options.eos));  // what a model is taught to end with ends its answers
  options.tokenizer_parts = text::tokenizer_parts(tokenizer);
  options.tokenizer_fingerprint = text::tokenizer_fingerprint(options.tokenizer_parts);
  std::vector<std::string> notices;
  std::string where;
  const io::Json processor = image_processor(model_dir, &where);
  if (!processor.is_null() && !processor.is_object())
    refuse(ErrorKind::kInput, "the image processor is not a JSON object", where,
           processor.type_name(), "an object", kItsOwnFile);
  const io::Json numbers = processor.is_null() ? io::Json::object() : processor;
  options.image_mean = three_numbers(numbers, "image_mean", kClipMean, false, where);
  options.image_std = three_numbers(numbers, "image_std", kClipStd, true, where);
  check_steps(numbers, where);
  check_square(numbers, "crop_size", config.vision.image_size, where);
  if (rules.image_fit == "crop") check_square(numbers, "size", config.vision.image_size, where);
  if (!numbers.contains("image_mean") || !numbers.contains("image_std")) {
    notices.push_back(model_dir + " gives no image_mean and image_std: CLIP's are used");
  }
  options.max_tokens = std::min(rules.max_tokens, config.text.max_positions);
  if (options.max_tokens < rules.max_tokens) {
    notices.push_back("data.max_tokens lowered from " + std::to_string(rules.max_tokens) + " to " +
                      std::to_string(options.max_tokens) + ", the model's positions");
  }
  if (notice) *notice = join(notices, "; ");
  return options;
}

}  // namespace lft::data
