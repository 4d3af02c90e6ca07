#include "src/recipe/train_command.h"

#include "src/base/text.h"
#include "src/recipe/value_text.h"

namespace lft::recipe {

std::string next_run_command(const Recipe& recipe, const std::string& suffix,
                             const std::vector<std::pair<std::string, std::string>>& sets) {
  std::string out = recipe.output_dir;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  std::string command = "lft train " + shell_word(out + "/recipe.resolved.yaml") + " --set " +
                        shell_word("output_dir=" + value_text(out + suffix));
  for (const auto& [key, value] : sets) command += " --set " + shell_word(key + "=" + value);
  return command;
}

}  // namespace lft::recipe
