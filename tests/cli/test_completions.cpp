// The man page and the shell completions, read by the programs they are for, if
// installed.
#include <gtest/gtest.h>

#include "cli/run_lft.h"

namespace lft::completions_test {
namespace {

using test::Ran;
using test::run_lft;

/// Output of a shell command.
std::string shell(const std::string& command) {
  std::string out;
  FILE* pipe = popen(("bash -c '" + command + "' 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, got);
  pclose(pipe);
  return out;
}

class Completions : public ::testing::Test {
 protected:
  std::string file(const std::string& kind) {
    const Ran ran = run_lft("completions " + kind);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return dir_.write(kind, ran.out);
  }
  test::TempDir dir_;
};

TEST_F(Completions, BashWalksFromCommandToCommand) {
  const std::string script = file("bash");
  const auto completed = [&](const std::string& words, int at) {
    return shell("source " + script + "; COMP_WORDS=(" + words +
                 "); COMP_CWORD=" + std::to_string(at) + "; _lft; echo \"${COMPREPLY[@]}\"");
  };
  EXPECT_EQ(completed("lft tra", 1), "train\n");
  EXPECT_EQ(completed("lft train recipe.yaml --re", 3), "--resume\n");
  EXPECT_EQ(completed("lft debug over", 2), "overfit\n");
  EXPECT_NE(completed("lft debug base --", 3).find("--help"), std::string::npos);
  EXPECT_EQ(completed("lft check x.yaml --p", 3), "--plan\n");
  EXPECT_EQ(completed("lft debug part", 2), "\n") << "hidden commands stay hidden";
  EXPECT_EQ(completed("lft train --first", 2), "\n") << "hidden options, too";
}

TEST_F(Completions, BashKnowsRecipesFieldsTargetsAndMetrics) {
  const std::string script = file("bash");
  const auto completed = [&](const std::string& words, int at) {
    return shell("source " + script + "; COMP_WORDS=(" + words +
                 "); COMP_CWORD=" + std::to_string(at) + "; _lft; echo \"${COMPREPLY[@]}\"");
  };
  EXPECT_EQ(completed("lft train rows-200", 2), "rows-200 rows-200k\n");
  EXPECT_EQ(completed("lft recipe cat quick", 3), "quickstart quickstart-base quickstart-dpo\n");
  EXPECT_EQ(completed("lft generate smol", 2), "smolvlm-cpu smolvlm-lora\n");
  EXPECT_EQ(completed("lft train x.yaml --set lora.r", 4), "lora.rank= lora.rank_pattern=\n");
  EXPECT_EQ(completed("lft sweep x.yaml --over optim.l", 4), "optim.lr= optim.lora_plus_ratio=\n");
  EXPECT_EQ(completed("lft export a --target sg", 4), "sglang\n");
  EXPECT_EQ(completed("lft eval a --metric a", 4), "anls\n");
}

TEST_F(Completions, ZshAndFishHaveTheSameValues) {
  const std::string zsh = test::slurp(file("zsh")), fish = test::slurp(file("fish"));
  for (const char* word : {"rows-200k", "optim.lr=", "sglang", "anls"}) {
    EXPECT_NE(zsh.find(word), std::string::npos) << word;
    EXPECT_NE(fish.find(word), std::string::npos) << word;
  }
}

TEST_F(Completions, TheManPageHasDefaultsVariablesAndFiles) {
  const std::string man = test::slurp(file("man"));
  for (const char* piece : {"(default: 256)", "(required)", ".SH ENVIRONMENT", "OMP_NUM_THREADS",
                            ".SH FILES", ".SH EXIT STATUS"})
    EXPECT_NE(man.find(piece), std::string::npos) << piece;
}
TEST_F(Completions, EveryCommandHasItsPlaceInEachText) {
  const std::string man = test::slurp(file("man")), zsh = test::slurp(file("zsh")),
                    fish = test::slurp(file("fish"));
  for (const char* command :
       {"train", "check", "merge", "completions", "overfit", "verify-resume"}) {
    std::string in_roff = command;
    if (const size_t dash = in_roff.find('-'); dash != std::string::npos)
      in_roff.insert(dash, "\\");
    EXPECT_NE(man.find(in_roff), std::string::npos) << command;
    EXPECT_NE(zsh.find("'" + std::string(command) + ":"), std::string::npos) << command;
    EXPECT_NE(fish.find(" -a " + std::string(command) + " "), std::string::npos) << command;
  }
  EXPECT_NE(fish.find("__fish_seen_subcommand_from debug; and __fish_seen_subcommand_from base"),
            std::string::npos);
  for (size_t at = 0; at < man.size(); at = man.find('\n', at) + 1) {
    if (man[at] == '.') {
      EXPECT_TRUE(isupper(man[at + 1]) || man.compare(at, 3, ".br") == 0)
          << man.substr(at, 60) << ": no line of text begins as a request";
    }
  }
}

TEST_F(Completions, AnotherShellIsRefused) { EXPECT_EQ(run_lft("completions tcsh").code, 2); }

}  // namespace
}  // namespace lft::completions_test
