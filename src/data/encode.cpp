#include "src/data/encode.h"

#include <algorithm>
#include <numeric>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/encoded_image.h"
#include "src/data/rows/row_marks.h"
#include "src/data/shared_prompt.h"
#include "src/io/files.h"
#include "src/text/chat/labels.h"

namespace lft::data {
namespace {

[[noreturn]] void refuse_row(const Row& row, const std::string& what, const std::string& found,
                             const std::string& expected, const std::string& next) {
  refuse(ErrorKind::kInput, what, row_place(row), found, expected, next);
}

int64_t total_runs(const std::vector<family::ImagePlan>& images) {
  int64_t runs = 0;
  for (const family::ImagePlan& image : images) runs += static_cast<int64_t>(image.runs.size());
  return runs;
}

/// The text that replaces the placeholder of an image: that of its plan, without the surrounding
/// tokens if the template writes them itself.
std::string written_out(const family::ImagePlan& image, const EncodeOptions& options) {
  if (!options.chat->bare_placeholders()) return image.text;
  const family::Family& family = *options.config.family;
  const std::string mark = family.processor_mark, inner = family.placeholder;
  const size_t before = mark.find(inner);
  return image.text.substr(before, image.text.size() - (mark.size() - inner.size()));
}

/// Replaces the placeholders of images by their texts and shifts the spans.
void write_out_images(text::Rendered& rendered, const std::vector<family::ImagePlan>& images,
                      const EncodeOptions& options) {
  for (size_t i = images.size(); i-- > 0;) {
    const auto [at, end] = rendered.images.at(i);
    const std::string text = written_out(images[i], options);
    rendered.text.replace(at, end - at, text);
    for (std::vector<text::Rendered::Span>* spans :
         {&rendered.supervised, &rendered.masked, &rendered.given}) {
      for (text::Rendered::Span& span : *spans) {
        for (size_t* edge : {&span.begin, &span.end})
          if (*edge > at) *edge += text.size() - (end - at);
      }
    }
  }
}

std::vector<text::ByteRange> ranges_of(const std::vector<text::Rendered::Span>& spans) {
  std::vector<text::ByteRange> ranges;
  for (const text::Rendered::Span& span : spans)
    ranges.push_back({static_cast<uint32_t>(span.begin), static_cast<uint32_t>(span.end)});
  return ranges;
}

/// Leaves out of special tokens the white space that they take from the text next to them (`lstrip`
/// and `rstrip` in tokenizer.json).
void drop_blanks(const text::Tokenizer& tokenizer, EncodedText& text) {
  for (text::Token& token : text.tokens) {
    if (token.begin == token.end || !tokenizer.is_special(token.id)) continue;
    const std::string written = tokenizer.token_of(token.id);
    const std::string_view range =
        std::string_view(text.rendered.text).substr(token.begin, token.end - token.begin);
    const size_t at = range.find(written);
    if (at == std::string_view::npos) continue;
    token.begin += static_cast<uint32_t>(at);
    token.end = token.begin + static_cast<uint32_t>(written.size());
  }
}

/// Finds special tokens in the text of the data. Only the template should write them: they end or
/// begin turns.
void look_for_special(const Row& row, const text::Tokenizer& tokenizer,
                      const EncodeOptions& options, EncodedText& text) {
  auto given = text.rendered.given.begin();
  for (const text::Token& token : text.tokens) {
    while (given != text.rendered.given.end() && given->end <= token.begin) ++given;
    if (given == text.rendered.given.end()) return;
    if (token.end <= given->begin || token.begin == token.end || !tokenizer.is_special(token.id))
      continue;
    text.special_read = true;
    if (options.special_tokens == SpecialTokensInText::kSpecial) return;
    refuse_row(
        row, "a special token in a text",
        quote_text(tokenizer.token_of(token.id), 80) + " in " +
            quote_text(text.rendered.text.substr(given->begin, given->end - given->begin), 80),
        "words: what ends turns and marks images is written by data.template",
        "take it out of the row; or data.special_tokens_in_text: text reads it as text, "
        "special as the token");
  }
}

/// Refuses image placeholders that are not tokens of this tokenizer.
void check_token_marks(const Row& row, const text::Tokenizer& tokenizer,
                       const EncodeOptions& options) {
  if (options.count_marks) return;  // they are counted when rows are read
  for (const std::string& mark : token_marks(row)) {
    if (tokenizer.id_of(mark) >= 0) continue;
    refuse_row(row, "a mark of another tool, which would be trained on as it is",
               mark + ", which is no token of this tokenizer, and no image in the row",
               "no placeholder except <image>",
               "write \"<image>\\n\" in its place and name the file in \"image\" or \"images\"; "
               "data.special_tokens_in_text: text reads such texts as they are");
  }
}

/// Drops the tokens that the tokenizer adds around a text: the template has written the BOS itself,
/// which transformers' processors detect as well.
void drop_put_in(std::vector<text::Token>& tokens) {
  std::erase_if(tokens, [](const text::Token& token) { return token.begin == token.end; });
}

struct FittedImages {
  std::vector<family::ImagePlan> plans;
  std::vector<PixelImage> pixels;
};

/// Plans and decodes the images of a row.
FittedImages fit_images(const Row& row, const std::string& image_root, const EncodeOptions& options,
                        const std::string& next) {
  FittedImages images;
  for_each_image(row, image_root, options, next, [&](EncodedImage& image) {
    images.plans.push_back(image.plan());
    images.pixels.push_back(image.fit());
  });
  return images;
}

}  // namespace

std::string row_place(const Row& row) { return row.where + " (id " + quote_text(row.id, 80) + ")"; }

void throw_image_error(const Row& row, const Error& error, const std::string& next) {
  ErrorInfo info = advised(error, next).info();
  info.where = row_place(row) + (info.where.empty() ? "" : ": " + info.where);
  throw Error(error.kind(), info);
}

void check_marks(const Row& row) {
  const auto images = static_cast<int64_t>(row.images.size());
  int64_t marks = 0;
  for (const text::Message& message : row.messages()) {
    const auto here = static_cast<int64_t>(text::marks_of(message).size());
    if (message.role == "user")
      marks += here;
    else if (here > 0)
      refuse_row(row,
                 message.role == "assistant" ? "<image> in an answer"
                 : message.role == "system"  ? "<image> in a system text"
                                             : "<image> in a tool's message",
                 quote_text(message.text, 80), "images in questions only", kFixRow);
  }
  if (marks == images) return;
  const std::string next =
      marks == 0
          ? "write \"<image>\\n\" into the question where the image belongs (LLaVA puts it first)"
          : "give one file name in \"image\" or \"images\" for each mark, in order";
  refuse_row(row, "<image> marks and images differ in number",
             std::to_string(marks) + " marks, " + std::to_string(images) + " images",
             "as many marks as images", next);
}

std::vector<family::ImagePlan> plans_of(const std::vector<PixelImage>& images,
                                        const EncodeOptions& options) {
  std::vector<family::ImagePlan> plans;
  const auto fixed = options.images->fixed_shape();
  const family::ImageProcessor& processor = options.images->of_row(images.size());
  for (const PixelImage& image : images) {
    plans.push_back(
        processor.plan(fixed ? image::Size{fixed->width, fixed->height} : image.shape.source));
  }
  return plans;
}

std::vector<family::ImagePlan> fixed_plans(size_t count, const EncodeOptions& options) {
  const family::ImageShape shape = options.images->fixed_shape().value();
  return std::vector(count, options.images->plan({.width = shape.width, .height = shape.height}));
}

std::vector<family::ImagePlan> plan_images(const Row& row, const std::string& image_root,
                                           const EncodeOptions& options) {
  if (options.images->fixed_shape()) return fixed_plans(row.images.size(), options);
  std::vector<family::ImagePlan> plans;
  for_each_image(row, image_root, options, kFixImage,
                 [&](const EncodedImage& image) { plans.push_back(image.plan()); });
  return plans;
}

text::Rendered render_row(const Row& row, const EncodeOptions& options, bool generate) {
  try {
    return options.chat->render(row.conversation, generate);
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.where = row_place(row) + (info.where.empty() ? "" : ": " + info.where);
    throw Error(error.kind(), info);
  }
}

EncodedText encode_rendered(const Row& row, text::Rendered rendered,
                            const std::vector<family::ImagePlan>& images,
                            const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  check_token_marks(row, tokenizer, options);
  EncodedText text{.rendered = std::move(rendered), .tokens = {}, .supervised = {}};
  write_out_images(text.rendered, images, options);
  const bool as_text = options.special_tokens == SpecialTokensInText::kText;
  text.tokens =
      as_text ? tokenizer.encode_with_plain(text.rendered.text, ranges_of(text.rendered.given))
              : tokenizer.encode(text.rendered.text);
  drop_blanks(tokenizer, text);
  if (!as_text) look_for_special(row, tokenizer, options, text);
  if (text.rendered.has_bos) drop_put_in(text.tokens);
  text.supervised = text::supervised_mask(text.tokens, text.rendered.supervised);
  int64_t image_tokens = 0;
  for (const text::Token& token : text.tokens) {
    if (token.id < 0 || token.id >= options.config.text.vocab) {
      refuse_row(row, "a token id beyond the model's embedding rows", std::to_string(token.id),
                 "below " + std::to_string(options.config.text.vocab),
                 "use the tokenizer that belongs to the model");
    }
    image_tokens += token.id == options.config.image_token;
  }
  if (const int64_t runs = total_runs(images); image_tokens != runs) {
    refuse_row(row, "the tokenizer does not give one image token for each <image>",
               std::to_string(image_tokens) + " image tokens", std::to_string(runs),
               "use the tokenizer that belongs to the model");
  }
  return text;
}

EncodedText encode_text(const Row& row, const std::vector<family::ImagePlan>& images,
                        const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  return encode_rendered(row, render_row(row, options, /*generate=*/false), images, tokenizer,
                         options);
}

Sample expand_images(const EncodedText& text, const Row& row,
                     const std::vector<family::ImagePlan>& images, const EncodeOptions& options) {
  std::vector<int64_t> runs;
  for (const family::ImagePlan& image : images)
    runs.insert(runs.end(), image.runs.begin(), image.runs.end());
  auto run = runs.begin();
  Sample sample;
  sample.id = row.id;
  sample.special_read = text.special_read;
  const auto length = text.tokens.size() +
                      static_cast<size_t>(std::accumulate(runs.begin(), runs.end(), int64_t{}));
  sample.input_ids.reserve(length);
  sample.labels.reserve(length);
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    const int64_t id = text.tokens[i].id;
    const bool is_image = id == options.config.image_token,
               supervised = text.supervised[i] && !is_image && i > 0;
    for (int64_t copies = is_image ? *run++ : 1; copies > 0; --copies) {
      sample.input_ids.push_back(id);
      sample.labels.push_back(supervised ? id : kIgnoreIndex);
    }
  }
  return sample;
}

void truncate_sample(Sample& sample, const Row& row, const std::vector<family::ImagePlan>& images,
                     const EncodeOptions& options) {
  const int64_t length = static_cast<int64_t>(sample.input_ids.size());
  if (length <= options.max_tokens) return;
  const auto last =
      std::find(sample.input_ids.rbegin(), sample.input_ids.rend(), options.config.image_token);
  const int64_t after_images = sample.input_ids.rend() - last;
  if (after_images > options.max_tokens) {
    refuse_row(row, "the limit of tokens would cut an image",
               "the last image ends at position " + std::to_string(after_images) + " (" +
                   std::to_string(images.back().positions()) +
                   " positions an image, from the vision tower)",
               "at most data.max_tokens = " + std::to_string(options.max_tokens),
               "raise data.max_tokens (the model has " +
                   std::to_string(options.config.text.max_positions) +
                   " positions) or shorten the text before the image");
  }
  sample.input_ids.resize(static_cast<size_t>(options.max_tokens));
  sample.labels.resize(static_cast<size_t>(options.max_tokens));
}

namespace {

/// A row, or a side of a pair; `known`: its images, if they have been fitted.
Sample encode_side(const Row& row, const std::string& image_root, const text::Tokenizer& tokenizer,
                   const EncodeOptions& options, const std::vector<PixelImage>* known = nullptr) {
  check_marks(row);
  const bool fixed = options.images->fixed_shape().has_value();
  const auto fit = [&]() -> FittedImages {
    if (known != nullptr) return {plans_of(*known, options), *known};
    return fit_images(row, image_root.empty() ? "." : image_root, options, kFixImage);
  };
  FittedImages images;
  if (!fixed) images = fit();  // the text depends on their sizes
  if (fixed) images.plans = fixed_plans(row.images.size(), options);
  Sample sample =
      expand_images(encode_text(row, images.plans, tokenizer, options), row, images.plans, options);
  truncate_sample(sample, row, images.plans, options);
  if (fixed) images = fit();
  sample.images = std::move(images.pixels);
  return sample;
}

}  // namespace

Sample encode_row(const Row& row, const std::string& image_root, const text::Tokenizer& tokenizer,
                  const EncodeOptions& options) {
  Sample sample = encode_side(row, image_root, tokenizer, options);
  sample.desirable = row.desirable;
  if (!row.rejected) return sample;
  const bool same_images = row.rejected->images == row.images;
  sample.rejected.push_back(encode_side(*row.rejected, image_root, tokenizer, options,
                                        same_images ? &sample.images : nullptr));
  Sample& rejected = sample.rejected.front();
  if (same_images) rejected.shared = shared_prompt(sample, rejected, options.config);
  return sample;
}

Sample encode_question(const Row& row, size_t answer, const Sample& sample,
                       const text::Tokenizer& tokenizer, const EncodeOptions& options) {
  Row asked{.id = row.id, .where = row.where, .conversation = row.conversation, .images = {}};
  asked.conversation.messages.resize(answer);
  size_t shown = 0;
  for (const text::Message& message : asked.messages()) shown += text::marks_of(message).size();
  std::vector<family::ImagePlan> images = plans_of(sample.images, options);
  images.resize(std::min(shown, images.size()));
  asked.images.assign(
      row.images.begin(),
      row.images.begin() + static_cast<std::ptrdiff_t>(std::min(images.size(), row.images.size())));
  Sample prompt =
      expand_images(encode_rendered(asked, render_row(asked, options, /*generate=*/true), images,
                                    tokenizer, options),
                    asked, images, options);
  prompt.labels.clear();
  prompt.images.assign(sample.images.begin(),
                       sample.images.begin() + static_cast<std::ptrdiff_t>(images.size()));
  return prompt;
}

Sample encode_prompt(const Row& prompt, const text::Tokenizer& tokenizer,
                     const EncodeOptions& options) {
  check_marks(prompt);
  text::Rendered rendered = render_row(prompt, options, /*generate=*/true);
  const bool fixed = options.images->fixed_shape().has_value();
  const auto fit = [&] {
    return fit_images(prompt, "", options, "name an image file that is whole and can be read");
  };
  FittedImages images;
  if (!fixed) images = fit();  // the text depends on their sizes
  if (fixed) images.plans = fixed_plans(prompt.images.size(), options);
  Sample sample =
      expand_images(encode_rendered(prompt, std::move(rendered), images.plans, tokenizer, options),
                    prompt, images.plans, options);
  sample.labels.clear();
  const int64_t length = static_cast<int64_t>(sample.input_ids.size()),
                positions = options.config.text.max_positions;
  if (length > positions)
    refuse_row(prompt, kLongPrompt, std::to_string(length), std::to_string(positions),
               "shorten the prompt");
  if (fixed) images = fit();
  sample.images = std::move(images.pixels);
  return sample;
}

}  // namespace lft::data
