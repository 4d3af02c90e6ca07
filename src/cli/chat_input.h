// Input lines of a chat: with editing and history by libedit on a terminal, unchanged from a pipe.
#pragma once
#include <histedit.h>

#include <optional>
#include <string>
#include <vector>

namespace lft::cli {

class ChatInput {
 public:
  /// `commands` ("/clear") and, after "/image ", the names of files are completed.
  explicit ChatInput(std::vector<std::string> commands);
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;

  /// A line without its line break; nothing at the end of the input, after a signal, and on a
  /// terminal at Ctrl-D and at Ctrl-C on an empty line (otherwise Ctrl-C clears the line). kUsage
  /// for a piped line of more than 1 MB.
  std::optional<std::string> next();
  /// Whether stdin is a terminal.
  bool terminal() const { return terminal_; }

 private:
  std::optional<std::string> edited();
  std::optional<std::string> piped();
  bool wait();
  void complete();
  std::vector<std::string> candidates(const std::string& before) const;
  void remember(const std::string& line);

  static ChatInput& of(EditLine* editor);
  static unsigned char on_cancel(EditLine* editor, int);
  static unsigned char on_suspend(EditLine* editor, int);
  static unsigned char on_tab(EditLine* editor, int);
  static void bind(EditLine* editor);

  const std::vector<std::string> commands_;
  const bool terminal_;
  EditLine* editor_ = nullptr;  // for edited lines
  History* history_ = nullptr;
  std::string history_file_;  // empty: no history
  bool cancelled_ = false;
  std::string pending_;  // piped input that is not used yet
};

}  // namespace lft::cli
