#include "src/infer/generate.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/cli/chat_input.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/infer_target.h"
#include "src/data/encode.h"
#include "src/data/encoded_image.h"
#include "src/infer/answer_text.h"
#include "src/infer/stop_strings.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD: an incomplete character

struct GenerateCommand {
  InferOptions infer;
  std::vector<std::string> images;
  std::optional<std::string> prompt;
  DecodeOptions decode;
};

/// Prints an answer while it is generated.
class AnswerStream {
 public:
  AnswerStream(const text::Tokenizer& tokenizer, const infer::StopStrings& stop)
      : text_(tokenizer, stop), terminal_(isatty(STDOUT_FILENO) != 0) {}
  void add(int64_t id) { show(text_.add(id)); }
  bool ended() const { return text_.ended(); }
  /// The whole answer.
  std::string finish() {
    show(text_.finish());
    std::fputc('\n', stdout);
    std::fflush(stdout);
    return said_;
  }
  /// An answer that ends with an error is kept on a separate line.
  void break_off() {
    if (said_.empty()) return;
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }

 private:
  void show(const std::string& piece) {
    if (piece.empty()) return;
    const std::string safe = terminal_ ? escape_text(piece, SIZE_MAX, true)
                                       : piece;  // an answer must not contain control characters
    std::fwrite(safe.data(), 1, safe.size(), stdout);
    std::fflush(stdout);
    said_ += piece;
  }

  infer::AnswerText text_;
  const bool terminal_;
  std::string said_;
};

void check_marks(const std::vector<text::Turn>& turns, size_t images) {
  size_t marks = 0;
  for (const text::Turn& turn : turns) marks += text::count_image_marks(turn.question);
  if (marks == images) return;
  refuse(ErrorKind::kInput, "<image> marks and images differ in number", "the prompt",
         std::to_string(marks) + " marks, " + std::to_string(images) + " images",
         "as many marks as images",
         "give --image once for each placeholder, in order; without placeholders the images come "
         "first");
}

std::string answer(InferModel& infer, const std::vector<text::Turn>& turns,
                   const std::vector<std::string>& images, const DecodeOptions& decode) {
  check_marks(turns, images.size());
  const data::Sample prompt = data::encode_prompt({.id = "prompt",
                                                   .where = "prompt",
                                                   .conversation = {text::messages_of(turns)},
                                                   .images = images},
                                                  *infer.tokenizer, infer.encode);
  const infer::StopStrings stop(*infer.tokenizer, decode.stop);
  AnswerStream stream(*infer.tokenizer, stop);
  infer::GenerateOptions options = decode.generate;
  if (!stop.empty()) options.stops = [&](const auto&) { return stream.ended(); };
  options.on_token = [&](size_t, int64_t id) { stream.add(id); };
  try {
    infer::generate(infer.model, prompt, infer.encode, options, infer.dtype, infer.tokenizer.get());
  } catch (const Error&) {
    stream.break_off();
    throw;
  }
  return stream.finish();
}

/// A question contains its images: "<image>\n" for each is prepended unless the text has
/// placeholders.
std::string with_images(const std::string& question, size_t images) {
  if (question.find(text::kImageMark) != std::string::npos) return question;
  std::string out;
  for (size_t i = 0; i < images; ++i) out += std::string(text::kImageMark) + "\n";
  return out + question;
}

struct Talk {
  std::vector<std::string> images;
  size_t unseen = 0;  // images that are not in a question yet
  std::vector<text::Turn> turns = {};
};

constexpr std::string_view kImageCommand = "/image ";

/// Handles "/image FILE"; false for other lines. On a terminal a file that is not an image is
/// reported immediately, from a pipe by the question that uses it.
bool take_image(const std::string& line, const InferModel& infer, bool terminal, Talk& talk) {
  if (!line.starts_with(kImageCommand)) return false;
  const std::string file = line.substr(kImageCommand.size());
  if (!io::path_exists(file)) {
    notice("no such file: " + file + "; no image is added to the next question");
    return true;
  }
  if (terminal) data::EncodedImage(io::FileHandle::open_to_read(file), infer.encode).fit();
  talk.images.push_back(file);
  ++talk.unseen;
  if (terminal)
    notice(std::to_string(talk.unseen) + (talk.unseen == 1 ? " image" : " images") +
           " for the next question");
  return true;
}

constexpr const char* kHelp =
    "/image FILE  adds an image to the next question\n/clear       starts a new conversation with "
    "the images of the command line\n/help        prints this text\n/exit        ends the chat, as "
    "Ctrl-D and Ctrl-C on an empty line do\nCtrl-C       stops an answer, or clears the line; Tab "
    "completes, Up and Ctrl-R search the history";

/// A mistyped command; "/usr/bin, what is that?" is a question.
bool is_unknown_command(const std::string& line) {
  const std::string word = line.substr(0, line.find_first_of(" \t"));
  return word.size() > 1 && word[0] == '/' &&
         std::ranges::all_of(word.substr(1), [](char c) { return c >= 'a' && c <= 'z'; });
}

class Chat {
 public:
  Chat(InferModel& infer, const GenerateCommand& command)
      : infer_(infer),
        decode_(command.decode),
        anew_{.images = command.images, .unseen = command.images.size()},
        talk_(anew_),
        input_({"/clear", "/exit", "/help", "/image "}) {}

  void run() {
    if (input_.terminal()) {
      notice(
          "chat: /image FILE adds an image to the next question, /clear starts a new conversation, "
          "/help lists all commands, /exit or Ctrl-D ends");
    }
    for (;;) {
      const std::optional<std::string> line = input_.next();
      stop_if_requested();
      if (!line || *line == "/exit" || *line == "/quit") return;
      if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
      if (input_.terminal()) {
        take_from_person(*line);
      } else {
        take(*line);
      }
      stop_if_requested();
    }
  }

 private:
  void take(const std::string& line) {
    if (take_image(line, infer_, input_.terminal(), talk_)) return;
    if (line == "/clear") {
      talk_ = anew_;
      return;
    }
    talk_.turns.push_back({with_images(line, std::exchange(talk_.unseen, 0)), ""});
    talk_.turns.back().answer = answer(infer_, talk_.turns, talk_.images, decode_);
  }

  /// The chat continues after errors and after Ctrl-C. The conversation keeps the printed part of a
  /// stopped answer, and drops a question without an answer.
  void take_from_person(const std::string& line) {
    if (line == "/help") return print_line(kHelp);
    if (line != "/clear" && !line.starts_with(kImageCommand) && is_unknown_command(line))
      return notice(line == "/image" ? "/image needs a file" : "no such command; see /help");
    const Talk before = talk_;
    try {
      take(line);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput && error.kind() != ErrorKind::kNumeric) throw;
      std::fputs(format_error(error).c_str(), stderr);
      talk_ = before;
    }
    if (!take_interrupt()) return;
    if (talk_.turns.size() == before.turns.size()) return;
    std::string& said = talk_.turns.back().answer;
    if (said.ends_with(kReplacement)) said.resize(said.size() - kReplacement.size());
    if (said.empty()) {
      talk_ = before;
      notice("stopped: the question is removed");
    } else {
      notice("stopped: the conversation continues from here");
    }
  }

  InferModel& infer_;
  const DecodeOptions decode_;
  const Talk anew_;
  Talk talk_;
  ChatInput input_;
};

void generate_or_chat(GenerateCommand command) {
  for (const std::string& image : command.images) {
    if (!io::path_exists(image))
      refuse(ErrorKind::kInput, "no such image file", "--image " + image, {}, {},
             "paths are relative to the folder in which lft is started");
  }
  settle_target(command.infer);
  InferModel infer = load_infer_model(command.infer);
  if (!command.prompt) return Chat(infer, command).run();
  answer(infer, {{with_images(*command.prompt, command.images.size()), ""}}, command.images,
         command.decode);
  stop_if_requested();
}

}  // namespace

void add_generate(Command& app) {
  Command command = app.subcommand(
      "generate", "answer a prompt about an image; without --prompt it is a chat on the terminal");
  const auto options = std::make_shared<GenerateCommand>();
  add_infer_options(command, options->infer);
  command.option("--image", options->images, "image file; repeat for each image").one_each();
  command.option("--prompt", options->prompt,
                 "the question; <image> is the position of an image (default: at the start)");
  add_decode_options(command, options->decode);
  command.run([options] { generate_or_chat(*options); });
}

}  // namespace lft::cli
