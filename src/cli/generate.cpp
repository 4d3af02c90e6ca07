#include "src/infer/generate.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

constexpr const char* kImageMark = "<image>";

struct GenerateCommand {
  InferOptions infer;
  std::vector<std::string> images;
  std::optional<std::string> prompt;
  infer::GenerateOptions decode;
};

/// Writes an answer while it grows. A tail that may still change waits: a run of byte tokens
/// becomes text as a whole or not at all.
class AnswerStream {
 public:
  explicit AnswerStream(const text::Tokenizer& tokenizer)
      : tokenizer_(tokenizer), terminal_(isatty(STDOUT_FILENO) != 0) {}
  void add(int64_t id) {
    ids_.push_back(id);
    if (tokenizer_.token_of(id).starts_with("<0x")) return;
    const std::string text = tokenizer_.decode(ids_);
    if (!text.ends_with(kReplacement)) show(text);
  }
  std::string finish(const std::vector<int64_t>& ids) {
    const std::string text = tokenizer_.decode(ids);
    show(text);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    return text;
  }

 private:
  static constexpr const char* kReplacement =
      "\xEF\xBF\xBD";  // U+FFFD: bytes of a character are missing

  void show(const std::string& text) {
    if (text.size() <= shown_) return;
    const std::string piece = text.substr(shown_);
    const std::string safe = terminal_ ? escape_text(piece, SIZE_MAX, true)
                                       : piece;  // an answer must not move the cursor
    std::fwrite(safe.data(), 1, safe.size(), stdout);
    std::fflush(stdout);
    shown_ = text.size();
  }

  const text::Tokenizer& tokenizer_;
  const bool terminal_;
  std::vector<int64_t> ids_;
  size_t shown_ = 0;
};

void check_marks(const std::vector<text::Turn>& turns, size_t images) {
  size_t marks = 0;
  for (const text::Turn& turn : turns) {
    for (size_t at = turn.question.find(kImageMark); at != std::string::npos;
         at = turn.question.find(kImageMark, at + 1))
      ++marks;
  }
  if (marks == images) return;
  refuse(ErrorKind::kInput, "<image> marks and images differ in number", "the prompt",
         std::to_string(marks) + " marks, " + std::to_string(images) + " images",
         "as many marks as images",
         "give --image once for each mark, in order; without a mark the images stand in front");
}

std::string answer(InferModel& infer, const std::vector<text::Turn>& turns,
                   const std::vector<std::string>& images, const infer::GenerateOptions& decode) {
  check_marks(turns, images.size());
  const data::Sample prompt = data::encode_prompt(turns, images, *infer.tokenizer, infer.encode);
  AnswerStream stream(*infer.tokenizer);
  infer::GenerateOptions options = decode;
  options.on_token = [&](size_t, int64_t id) { stream.add(id); };
  return stream.finish(infer::generate(infer.model, prompt, infer.encode, options, infer.dtype));
}

/// A question carries the images that it shows: "<image>\n" for each goes in front unless the text
/// places them itself.
std::string with_images(const std::string& question, size_t images) {
  if (question.find(kImageMark) != std::string::npos) return question;
  std::string out;
  for (size_t i = 0; i < images; ++i) out += std::string(kImageMark) + "\n";
  return out + question;
}

/// Lines of stdin; a signal ends the wait (a blocking read would be restarted).
class TerminalLines {
 public:
  std::optional<std::string> next() {
    for (;;) {
      if (const size_t end = pending_.find('\n'); end != std::string::npos)
        return take(end, end + 1);
      if (pending_.size() > kMaxLine) {
        refuse(ErrorKind::kUsage, "a line of more than 1 MB was typed", "stdin", {}, {},
               "ask in shorter lines, each of which is one question");
      }
      if (wait()) continue;
      if (pending_.empty() || requested_signal() != 0) return std::nullopt;
      return take(pending_.size(), pending_.size());
    }
  }

 private:
  static constexpr size_t kMaxLine = 1u << 20;

  std::string take(size_t length, size_t used) {
    std::string line = pending_.substr(0, length);
    pending_.erase(0, used);
    return line;
  }
  bool wait() {  // false at the end of input and when a signal came
    for (;;) {
      if (requested_signal() != 0) return false;
      pollfd input{STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&input, 1, 200);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      char bytes[4096];
      const ssize_t got = ready < 0 ? -1 : read(STDIN_FILENO, bytes, sizeof bytes);
      if (got <= 0) return false;
      pending_.append(bytes, static_cast<size_t>(got));
      return true;
    }
  }

  std::string pending_;
};

struct Talk {
  std::vector<std::string> images;
  size_t unseen = 0;  // of them: no question has shown them yet
  std::vector<text::Turn> turns = {};
};

/// "/image FILE"; false where the line is no such thing.
bool take_image(const std::string& line, Talk& talk) {
  constexpr std::string_view kCommand = "/image ";
  if (!line.starts_with(kCommand)) return false;
  const std::string file = line.substr(kCommand.size());
  if (!io::path_exists(file)) {
    notice("no such file: " + file);
  } else {
    talk.images.push_back(file);
    ++talk.unseen;
  }
  return true;
}

void chat(InferModel& infer, const GenerateCommand& command) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    notice(
        "chat: /image FILE shows one more with the next question, /clear begins anew, /exit or "
        "Ctrl-D ends");
  }
  const Talk anew{.images = command.images, .unseen = command.images.size()};
  Talk talk = anew;
  TerminalLines lines;
  for (;;) {
    if (terminal) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    const std::optional<std::string> line = lines.next();
    stop_if_requested();
    if (!line || *line == "/exit") return;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (take_image(*line, talk)) continue;
    if (*line == "/clear") {
      talk = anew;
      continue;
    }
    talk.turns.push_back({with_images(*line, std::exchange(talk.unseen, 0)), ""});
    talk.turns.back().answer = answer(infer, talk.turns, talk.images, command.decode);
    stop_if_requested();
  }
}

void generate_or_chat(const GenerateCommand& command) {
  InferModel infer = load_infer_model(command.infer);
  if (!command.prompt) return chat(infer, command);
  answer(infer, {{with_images(*command.prompt, command.images.size()), ""}}, command.images,
         command.decode);
  stop_if_requested();
}

}  // namespace

void add_generate(Command& app) {
  Command command = app.subcommand(
      "generate", "answers a prompt about an image; without --prompt a chat on the terminal");
  const auto options = std::make_shared<GenerateCommand>();
  add_infer_options(command, options->infer).required();
  command.option("--image", options->images, "image file; once for every image").one_each();
  command.option("--prompt", options->prompt,
                 "the question; <image> marks where an image stands (default: in front)");
  command.option("--max-new-tokens", options->decode.max_new_tokens, "longest answer")
      .show_default()
      .range(1, 1 << 20);
  command.option("--temperature", options->decode.temperature, "0 takes the likeliest token")
      .show_default()
      .real_range(0.0, 100.0);
  command
      .option("--top-p", options->decode.top_p,
              "draw from the likeliest tokens that hold this much")
      .show_default()
      .real_range(1e-6, 1.0);
  command.option("--seed", options->decode.seed, "of the draws").show_default();
  command.run([options] { generate_or_chat(*options); });
}

}  // namespace lft::cli
