// The lines that a person types into a chat: edited and remembered by libedit on a terminal, taken
// as they are from a pipe. What a line means is the chat's.
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

  /// A line without its end; nothing where the input ends or a signal came, and on a terminal at
  /// Ctrl-D and at Ctrl-C on an empty line (on another it begins the line anew). kUsage for more
  /// than 1 MB that was piped.
  std::optional<std::string> next();
  /// Someone sits there: stdin is a terminal.
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
  EditLine* editor_ = nullptr;  // where lines are edited
  History* history_ = nullptr;
  std::string history_file_;  // empty: it is not kept
  bool cancelled_ = false;
  std::string pending_;  // piped and not taken yet
};

}  // namespace lft::cli
