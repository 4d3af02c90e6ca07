// lft validate and lft preview as commands: exit codes, one error block, machine-readable
// output.
#include <fstream>

#include "cli/run_lft.h"
#include "debug/validate_fixture.h"

namespace lft::data_cli_test {
using namespace lft::io;
using namespace lft::recipe;
namespace {

using test::Ran;
using test::row;
using test::run_lft;

class DataCommands : public test::DataTest {
 protected:
  Ran run(const std::string& command, const std::string& options = "") {
    save();
    return run_lft(command + " " + run_.dir().write("recipe.yaml", dump_recipe(recipe_)) + " " +
                   options);
  }
};

bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

TEST_F(DataCommands, HealthyDataExitsWithZero) {
  const Ran ran = run("validate");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.count("error:"), 0) << ran.err;
  for (const char* piece :
       {"rows.jsonl: 12 rows\n", "\n  replies    100% of 12 end with a supervised \"</s>\"\n",
        "\nimages  12 files, 12 decoded\n", "\n0 errors, 0 warnings\n", " images/s, "}) {
    EXPECT_TRUE(contains(ran.out, piece)) << "no \"" << piece << "\" in:\n" << ran.out;
  }
  EXPECT_FALSE(path_exists(run_.dir().file("out")));
}

TEST_F(DataCommands, ProblemsExitWithThreeAndOneBlock) {
  lines_[2] = "{";
  lines_[4] = row("row4", "nowhere.png", "<image>\nWhat?", "blue").dump();
  lines_[6] = row("row6", "nowhere.png", "<image>\nWhat else?", "blue").dump();
  recipe_.data.max_bad = 2;
  for (const std::string policy : {"error", "skip"}) {
    recipe_.data.on_bad_sample = policy;
    const Ran ran = run("validate", "--workers 3");
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_EQ(ran.count("error:"), 1) << ran.err;
    EXPECT_EQ(ran.count("the data has 3 problems"), 1) << ran.err;
    EXPECT_EQ(ran.count("1 x a malformed row, first " + line(2)), 1) << ran.err;
    EXPECT_EQ(ran.count("2 x an image file that is not there, first " + line(4)), 1) << ran.err;
    EXPECT_TRUE(contains(ran.out, "error  an image file that is not there: 2\n  " + line(4) +
                                      " (id \"row4\"): \"nowhere.png\": no such file "))
        << ran.out;
    EXPECT_TRUE(contains(ran.out, "\n3 errors, 0 warnings\n")) << ran.out;
  }
}

TEST_F(DataCommands, WarningsAloneExitWithZero) {
  lines_[3] = lines_[0];
  lines_[4] = row("row4", "", "What?", std::string(600, 'a')).dump();
  const Ran ran = run("validate");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.count("error:"), 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "\n0 errors, 3 warnings\n")) << ran.out;
  for (const char* piece : {"warning  an id that an earlier row has: 1\n",
                            "warning  a row that says what an earlier one says: 1\n",
                            "warning  a row cut by data.max_tokens: 1\n"}) {
    EXPECT_TRUE(contains(ran.out, piece)) << "no \"" << piece << "\" in:\n" << ran.out;
  }
}

TEST_F(DataCommands, BadRowsThatTrainingSkipsExitWithZero) {
  lines_[3] = "{";
  const std::string skip = "--set data.on_bad_sample=skip --set data.max_bad=";
  EXPECT_EQ(run("validate").code, 3);
  const Ran skipped = run("validate", skip + "1");
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_TRUE(contains(skipped.out, "error  a malformed row: 1\n")) << skipped.out;
  const Ran stopped = run("validate", skip + "0");
  EXPECT_EQ(stopped.code, 3);
  EXPECT_TRUE(contains(stopped.err, "or raise data.max_bad, which is 0")) << stopped.err;
  EXPECT_FALSE(contains(stopped.out + stopped.err, "skip leaves such rows out")) << stopped.err;
}

TEST_F(DataCommands, JsonIsOneObjectWhateverTheDataHolds) {
  lines_[1] = row("\u202e\"\x1b", "nowhere \"\x01.png", "<image>\nWhat?", "blue").dump();
  lines_[2] = "{\"id\": \"\xff\"}";
  const Ran ran = run("validate", "--json");
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_EQ(ran.count("error:"), 1) << ran.err;
  const nlohmann::json json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["errors"], 2);
  EXPECT_EQ(json["warnings"], 0);
  EXPECT_EQ(json["files"][0]["rows"], 12);
  EXPECT_EQ(json["files"][0]["malformed"], 1);
  EXPECT_EQ(json["files"][0]["eos_share"], 1.0);
  EXPECT_EQ(json["images"], (nlohmann::json{{"files", 11}, {"decoded", 10}}));
  ASSERT_EQ(json["problems"].size(), 2u);
  EXPECT_EQ(json["problems"][0]["kind"], "malformed_row");
  EXPECT_EQ(json["problems"][0]["first"][0]["where"], line(2));
  EXPECT_EQ(json["problems"][0]["first"][0]["id"], nullptr);
  EXPECT_EQ(json["problems"][1]["kind"], "missing_image");
  EXPECT_EQ(json["problems"][1]["severity"], "error");
  EXPECT_EQ(json["problems"][1]["count"], 1);
  EXPECT_EQ(json["problems"][1]["first"][0]["id"], "\u202e\"\x1b");
  EXPECT_GT(json["timing"]["images_per_s"], 0);
}

TEST_F(DataCommands, UsageErrors) {
  EXPECT_EQ(run("validate", "--workers 0").code, 2);
  EXPECT_EQ(run("validate", "--set data.max_token=3").code, 2);
  EXPECT_EQ(run("validate", "--set model.path=" + run_.dir().file("nowhere")).code, 3);
  EXPECT_EQ(run("preview", "-n 0").code, 2);
  EXPECT_EQ(run("preview", "--set data.template=chatty").code, 2);
}

TEST_F(DataCommands, PreviewPrintsMarksIntoAFileAndColoursOnATerminal) {
  const Ran ran = run("preview", "-n 2 --set data.shuffle=false");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "[[ red</s>]]\n\nsample   id \"row1\"")) << ran.out;
  EXPECT_FALSE(contains(ran.out, "\x1b")) << ran.out;
  EXPECT_FALSE(contains(ran.out, "row2")) << ran.out;
  // script(1), part of every Debian, gives the command a terminal.
  const std::string typed = run_.dir().file("typed");
  const std::string command = "OMP_NUM_THREADS=1 script -qec '" LFT_BINARY_DIR "/lft preview " +
                              run_.dir().file("recipe.yaml") + " -n 1' " + typed +
                              " >/dev/null 2>&1 </dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_TRUE(contains(test::slurp(typed), "\x1b[1;32m")) << test::slurp(typed);
}

TEST_F(DataCommands, PreviewWritesAPageButNotOverAnInput) {
  const std::string page = run_.dir().file("page.html");
  EXPECT_EQ(run("preview", "-n 2 --html " + page).code, 0);
  EXPECT_TRUE(contains(test::slurp(page), "data:image/png;base64,"));
  const std::string rows = test::slurp(recipe_.data.train.path);
  for (const std::string& input :
       {recipe_.data.train.path, run_.dir().file("recipe.yaml"), run_.model() + "/page.html"}) {
    const Ran ran = run("preview", "--html " + input);
    EXPECT_EQ(ran.code, 2) << input;
    EXPECT_EQ(ran.count("would harm an input"), 1) << ran.err;
  }
  EXPECT_EQ(test::slurp(recipe_.data.train.path), rows);
}

}  // namespace
}  // namespace lft::data_cli_test
