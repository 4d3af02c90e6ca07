#include "src/cli/command_text.h"

#include <algorithm>
#include <functional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::cli {
namespace {

/// Visits "lft", "lft debug", "lft debug base" and so on.
void for_each_command(const CommandText& command, const std::string& path,
                      const std::function<void(const std::string&, const CommandText&)>& body) {
  body(path, command);
  for (const CommandText& each : command.commands)
    for_each_command(each, path + " " + each.name, body);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// Text as lines of roff without requests or escapes.
std::string roff(const std::string& text) {
  const std::string plain = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  std::string out;
  for (size_t at = 0; at <= plain.size();) {
    const size_t end = std::min(plain.find('\n', at), plain.size());
    const bool request = end > at && (plain[at] == '.' || plain[at] == '\'');
    out +=
        (at == 0 ? "" : "\n.br\n") + std::string(request ? "\\&" : "") + plain.substr(at, end - at);
    at = end + 1;
  }
  return out;
}

std::string joined_names(const OptionText& option) {
  return join(option.names) + (option.value.empty() ? "" : " " + option.value);
}

/// Completions of a command: its subcommands and its options.
std::vector<std::string> words_after(const CommandText& command) {
  std::vector<std::string> words;
  for (const CommandText& each : command.commands) words.push_back(each.name);
  for (const OptionText& option : command.options)
    if (!option.positional) words.insert(words.end(), option.names.begin(), option.names.end());
  return words;
}

/// The option's name with the text that --help prints next to it.
std::string option_help(const OptionText& option) {
  std::string text = option.help.empty() ? "-" : option.help;
  if (!option.fallback.empty()) text += " (default: " + option.fallback + ")";
  if (option.required && !option.positional) text += " (required)";
  return text;
}

std::string single_quoted(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

/// Shell code, for bash and zsh, that follows the words as long as they are commands. `first` is
/// the index of the first word after lft.
std::string walk(const CommandText& lft, const std::string& words, const std::string& current,
                 const std::string& first) {
  std::vector<std::string> paths;
  for_each_command(lft, "lft", [&](const std::string& path, const CommandText&) {
    if (path != "lft") paths.push_back("\"" + path + "\"");
  });
  return "  local at=lft i\n  for ((i = " + first + "; i < " + current +
         "; i++)); do\n    case \"$at ${" + words + "[i]}\" in\n      " + join(paths, "|") +
         ") at=\"$at ${" + words + "[i]}\";;\n    esac\n  done\n";
}

/// Completions of the command's positional arguments.
std::vector<std::string> argument_words(const CommandText& command, const ValueWords& values) {
  std::vector<std::string> words;
  for (const OptionText& option : command.options) {
    const auto known = values.find(option.names.front());
    if (option.positional && known != values.end())
      words.insert(words.end(), known->second.begin(), known->second.end());
  }
  return words;
}

/// The options whose values are known, of any command.
ValueWords option_words(const ValueWords& values) {
  ValueWords options;
  for (const auto& [name, words] : values)
    if (name.starts_with("--")) options[name] = words;
  return options;
}

std::string bash(const CommandText& lft, const ValueWords& values) {
  std::string text = "_lft() {\n" + walk(lft, "COMP_WORDS", "COMP_CWORD", "1") +
                     "  local words=\"\" current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                     "  case \"${COMP_WORDS[COMP_CWORD-1]}\" in\n";
  for (const auto& [option, words] : option_words(values))
    text += "    " + option + ") words=\"" + join(words, " ") + "\";;\n";
  text += "    *) case \"$at\" in\n";
  for_each_command(lft, "lft", [&](const std::string& path, const CommandText& command) {
    std::vector<std::string> words = words_after(command);
    const std::vector<std::string> more = argument_words(command, values);
    words.insert(words.end(), more.begin(), more.end());
    text += "    \"" + path + "\") words=\"" + join(words, " ") + "\";;\n";
  });
  return text +
         "    esac;;\n  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n  return 0\n}\n"
         "complete -o default -o bashdefault -F _lft lft\n";
}

std::string zsh(const CommandText& lft, const ValueWords& values) {
  std::string text = "#compdef lft\n_lft() {\n" + walk(lft, "words", "CURRENT", "2") +
                     "  local -a entries\n  case \"${words[CURRENT-1]}\" in\n";
  for (const auto& [option, words] : option_words(values))
    text += "    " + option + ") entries=(" + join(words, " ") +
            "); compadd -S '' -a entries; return;;\n";
  text += "  esac\n  case \"$at\" in\n";
  for_each_command(lft, "lft", [&](const std::string& path, const CommandText& command) {
    text += "    \"" + path + "\") entries=(";
    const auto entry = [&](const std::string& name, const std::string& help) {
      const std::string line = replaced(help.substr(0, help.find('\n')), ":", "\\:");
      text += " " + single_quoted(name + ":" + line);
    };
    for (const CommandText& each : command.commands) entry(each.name, each.help);
    for (const std::string& word : argument_words(command, values)) entry(word, "bundled recipe");
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) entry(name, option.help);
    }
    text += " );;\n";
  });
  return text + "  esac\n  _describe lft entries\n  _files\n}\n_lft \"$@\"\n";
}

/// The condition under which fish offers completions of a command.
std::string fish_seen(const std::string& path, const CommandText& command) {
  std::string seen;
  for (size_t at = path.find(' '); at != std::string::npos;) {
    const size_t end = path.find(' ', at + 1);
    const std::string word = path.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    seen += (seen.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
    at = end;
  }
  std::string below;
  for (const CommandText& each : command.commands) below += " " + each.name;
  if (seen.empty()) return "__fish_use_subcommand";
  return below.empty() ? seen : seen + "; and not __fish_seen_subcommand_from" + below;
}

std::string fish(const CommandText& lft, const ValueWords& values) {
  std::string text;
  for_each_command(lft, "lft", [&](const std::string& path, const CommandText& command) {
    const std::string line = "complete -c lft -n " + single_quoted(fish_seen(path, command));
    const auto help = [](const std::string& help) {
      return " -d " + single_quoted(help.substr(0, help.find('\n'))) + "\n";
    };
    for (const CommandText& each : command.commands)
      text += line + " -f -a " + each.name + help(each.help);
    if (const std::vector<std::string> words = argument_words(command, values); !words.empty())
      text += line + " -a " + single_quoted(join(words, " ")) + help("bundled recipe");
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) {
        const auto known = values.find(name);
        const bool is_long = name.starts_with("--");
        text += line + (is_long ? " -l " + name.substr(2) : " -s " + name.substr(1)) +
                (option.value.empty() ? "" : " -r") +
                (known == values.end() ? "" : " -f -a " + single_quoted(join(known->second, " "))) +
                help(option.help);
      }
    }
  });
  return text;
}

}  // namespace

std::string man_page(const CommandText& lft, const std::string& version) {
  std::string text = ".TH LFT 1 \"\" \"" + roff(version) + "\" \"User Commands\"\n.SH NAME\n" +
                     "lft \\- " + roff(lft.help) + "\n.SH SYNOPSIS\n.B lft\n.I COMMAND\n" +
                     "[options]\n.SH COMMANDS\n";
  for_each_command(lft, "lft", [&](const std::string& path, const CommandText& command) {
    if (path == "lft") return;
    std::string arguments;
    for (const OptionText& option : command.options)
      if (option.positional) arguments += " " + option.names.front();
    text += ".SS \"" + roff(path + arguments) + "\"\n" + roff(command.help) + "\n";
    for (const OptionText& option : command.options) {
      text += ".TP\n.B " + roff(option.positional ? option.names.front() : joined_names(option)) +
              "\n" + roff(option_help(option)) + "\n";
    }
    if (!command.footer.empty()) text += ".PP\n" + roff(command.footer) + "\n";
  });
  return text +
         ".SH ENVIRONMENT\n"
         ".TP\n.B OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT\n"
         "number of CPU threads, and how they wait.\n"
         ".TP\n.B CUDA_VISIBLE_DEVICES\nthe GPUs that a run may use.\n"
         ".TP\n.B XDG_CACHE_HOME, XDG_STATE_HOME\n"
         "directories for unpacked data files and for the chat history.\n"
         ".TP\n.B LFT_RECIPES\nthe directory of the bundled recipes.\n"
         ".TP\n.B NO_COLOR\nplain text on a terminal.\n"
         ".SH FILES\n"
         ".TP\n.I ~/.cache/lft/unpacked\nunpacked Parquet and Arrow files.\n"
         ".TP\n.I ~/.local/state/lft/chat_history\nlines of earlier chats.\n"
         ".TP\n.I OUTPUT_DIR\noutput of a run: metrics.jsonl, checkpoints, the adapter, "
         "report.html.\n"
         ".SH EXIT STATUS\n0 success; 1 a bug of lft; 2 an error in recipe or command line; 3 "
         "invalid "
         "model, adapter, tokenizer or data; 4 an unusable checkpoint; 5 numbers that are not "
         "finite, "
         "or nothing was learned; 6 memory, disk or device; 75 stopped by a signal, 130 by "
         "Ctrl\\-C.\n";
}

std::string completions(const CommandText& lft, const std::string& shell,
                        const ValueWords& values) {
  if (shell == "bash") return bash(lft, values);
  if (shell == "zsh") return zsh(lft, values);
  if (shell == "fish") return fish(lft, values);
  refuse(ErrorKind::kUsage, "no completions for this shell", "SHELL", quote_text(shell),
         "bash, zsh or fish");
}

}  // namespace lft::cli
