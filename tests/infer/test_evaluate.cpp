// Questions and references of an evaluation with truncated or bad rows, and a run's use of it.
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/text.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/infer/evaluate.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::evaluate_test {
using namespace lft::data;
using namespace lft::hf;
using namespace lft::infer;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
using namespace lft::text;
using namespace lft::train;
namespace {

constexpr int64_t kMaxTokens = 120;  // bytes, and 16 image positions

nlohmann::json row(const std::string& id, const std::vector<Turn>& turns) {
  nlohmann::json conversations = nlohmann::json::array();
  for (const Turn& turn : turns) {
    conversations.push_back(
        {{"from", "human"}, {"value", (conversations.empty() ? "<image>\n" : "") + turn.question}});
    conversations.push_back({{"from", "gpt"}, {"value", turn.answer}});
  }
  return {{"id", id}, {"image", "red0.bmp"}, {"conversations", conversations}};
}

const std::string kLong(200, 'x');

/// Whole rows, one that loses its second answer, and one that loses its only answer.
std::string rows_file(const test::TinyRun& run) {
  const nlohmann::json rows = {row("whole", {{"What?", "red"}, {"Sure?", "yes"}}),
                               row("no_second", {{"What?", "red"}, {kLong, "yes"}}),
                               row("unanswered_row", {{kLong, "red"}}),
                               row("cut", {{"What?", kLong}, {"Sure?", "yes"}})};
  return run.dir().write("cut.json", rows.dump());
}

EvalResult evaluate_rows(const test::TinyRun& run, const std::string& file,
                         const EvalOptions& options = {.batch_size = 3,
                                                       .workers = 1,
                                                       .decode = {.max_new_tokens = 4,
                                                                  .on_token = {}}},
                         bool open_questions = false) {
  const ModelDir dir = ModelDir::open(run.model());
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(run.model());
  EncodeOptions encode = encode_options(run.model(), dir.config, *tokenizer,
                                        {{"llava-hf", "pad"}, kMaxTokens}, nullptr);
  encode.open_questions = open_questions;
  Model model = load_model(dir, at::kFloat, at::kCPU);
  const auto dataset = open_dataset(file, run.dir().file("images"), *tokenizer, encode);
  return evaluate(model, *dataset, *tokenizer, encode, options);
}

TEST(Evaluate, AsksForTheLastAnswerThatTruncationLeft) {
  const test::TinyRun run;
  const EvalResult result = evaluate_rows(run, rows_file(run));
  ASSERT_EQ(result.records.size(), 4u);
  const std::vector<std::string> questions = {"Sure?", "<image>\nWhat?", "<image>\n" + kLong,
                                              "<image>\nWhat?"},
                                 references = {"yes", "red", "red", kLong};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.records[i].question, questions[i]) << i;
    EXPECT_EQ(result.records[i].reference, references[i]) << i;
    EXPECT_EQ(result.records[i].answered, i != 2) << i;
    EXPECT_EQ(result.records[i].loss > 0, i != 2) << i;
  }
}

TEST(Evaluate, AsksForTheLastAnswerThatIsLearnt) {
  const test::TinyRun run;
  nlohmann::json masked = row("masked", {{"What?", "red"}, {"Sure?", "yes"}});
  masked["conversations"][3]["weight"] = 0;
  const std::string file = run.dir().write("masked.json", nlohmann::json::array({masked}).dump());
  const EvalResult result = evaluate_rows(run, file);
  EXPECT_EQ(result.records.at(0).question, "<image>\nWhat?");
  EXPECT_EQ(result.records.at(0).reference, "red");
  masked["conversations"][1]["weight"] = 0;
  masked["conversations"][3]["weight"] = 1;
  run.dir().write("masked.json", nlohmann::json::array({masked}).dump());
  EXPECT_EQ(evaluate_rows(run, file).records.at(0).reference, "yes");
}

/// A row that ends with its question is answered, and compared if it lists answers.
TEST(Evaluate, RowsWithoutAnAnswerAreAnswered) {
  const test::TinyRun run;
  nlohmann::json answered = row("a", {{"What?", "red"}, {"Sure?", "yes"}}), listed = answered,
                 open = answered;
  for (nlohmann::json* each : {&listed, &open}) (*each)["conversations"].erase(3);
  listed["answers"] = {"no", {{"answer", "yes"}, {"answer_id", 1}}};
  const std::string file =
      run.dir().write("open.json", nlohmann::json::array({answered, listed, open}).dump());
  EvalOptions options{
      .batch_size = 3, .workers = 1, .decode = {.max_new_tokens = 40, .on_token = {}}};
  options.metric = Metric::kAnls;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no answer", evaluate_rows(run, file, options));
  const EvalResult result = evaluate_rows(run, file, options, /*open_questions=*/true);
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_EQ(result.answered, 3);
  EXPECT_EQ(result.compared, 2);
  EXPECT_EQ(result.supervised, result.records[0].supervised);
  EXPECT_EQ(result.records[1].references, (std::vector<std::string>{"no", "yes"}));
  for (const EvalRecord& record : result.records) {
    EXPECT_EQ(record.question, "Sure?");
    EXPECT_EQ(record.answer, result.records[0].answer) << "the same prompt";
  }
  EXPECT_EQ(result.records[2].score, 0);
  EXPECT_EQ(result.records[2].loss, 0);

  const std::string& answer = result.records[0].answer;
  ASSERT_GT(answer.size(), 4u);
  options.stop = {answer.substr(2, 2)};
  const EvalResult stopped = evaluate_rows(run, file, options, /*open_questions=*/true);
  EXPECT_EQ(stopped.records[2].answer, trimmed(answer.substr(0, answer.find(options.stop[0]))));
}

/// The row's own last answer is no reference then.
TEST(Evaluate, ListedAnswersAreTheReferences) {
  const test::TinyRun run;
  nlohmann::json open = row("a", {{"What?", "red"}});
  const auto file = [&](const nlohmann::json& each) {
    return run.dir().write("rows.json", nlohmann::json::array({each}).dump());
  };
  open["answers"] = {"zzz"};
  const EvalResult other = evaluate_rows(run, file(open));
  const std::string answer = other.records.at(0).answer;
  ASSERT_FALSE(answer.empty());
  open["conversations"][1]["value"] = answer;
  EXPECT_FALSE(evaluate_rows(run, file(open)).records.at(0).match);
  open["answers"] = {"zzz", answer};
  EXPECT_TRUE(evaluate_rows(run, file(open)).records.at(0).match);
}

TEST(Evaluate, ARowWithoutAnAnswerCountsInNeitherMean) {
  const test::TinyRun run;
  const EvalResult all = evaluate_rows(run, rows_file(run));
  EXPECT_EQ(all.samples, 4);
  EXPECT_EQ(all.answered, 3);
  const EvalResult none = evaluate_rows(
      run,
      run.dir().write("none.json",
                      nlohmann::json::array({row("unanswered_row", {{kLong, "red"}})}).dump()));
  EXPECT_EQ(none.samples, 1);
  EXPECT_EQ(none.answered, 0);
  EXPECT_EQ(none.supervised, 0);
  EXPECT_EQ(none.records[0].answer, "");
  EXPECT_TRUE(std::isnan(none.loss)) << "a mean over nothing";
  EXPECT_TRUE(std::isnan(none.score));
}

/// Rows of 59 to 120 positions: a budget of 200 fits one to three of them.
TEST(Evaluate, PackedRowsHaveTheFiguresOfPaddedOnes) {
  const test::TinyRun run;
  nlohmann::json rows = nlohmann::json::parse(test::slurp(rows_file(run)));
  for (int i = 0; i < 5; ++i)
    rows.push_back(row("more" + std::to_string(i),
                       {{std::string(10 * i, 'q') + "?", std::string(5 + i, 'z')}}));
  const std::string file = run.dir().write("mixed.json", rows.dump());
  const EvalOptions padded{
      .batch_size = 4, .workers = 1, .decode = {.max_new_tokens = 4, .on_token = {}}};
  EvalOptions packed = padded;
  packed.max_tokens = 200;
  for (const int64_t limit : {0, 1, 6}) {
    EvalOptions some = padded, some_packed = packed;
    some.limit = some_packed.limit = limit;
    const EvalResult want = evaluate_rows(run, file, some),
                     got = evaluate_rows(run, file, some_packed);
    ASSERT_EQ(got.records.size(), want.records.size());
    EXPECT_EQ(got.samples, limit == 0 ? 9 : limit);
    EXPECT_EQ(got.exact_match, want.exact_match);
    EXPECT_NEAR(got.loss, want.loss,
                4e-6 * want.loss);  // float32 sums of at most 200 terms in another order
    for (size_t i = 0; i < want.records.size(); ++i) {
      EXPECT_EQ(got.records[i].index, want.records[i].index);
      EXPECT_EQ(got.records[i].answer, want.records[i].answer) << i;
      EXPECT_NEAR(got.records[i].loss, want.records[i].loss, 4e-6 * want.records[i].loss) << i;
    }
  }
}

/// Loss and answers of a batch come from one pass over its rows.
TEST(Evaluate, LossAndAnswersAreThoseOfSeparatePasses) {
  const test::TinyRun run;
  const std::string file = rows_file(run);
  for (const int64_t max_tokens : {0, 200}) {
    EvalOptions both{.batch_size = 3,
                     .workers = 1,
                     .max_tokens = max_tokens,
                     .decode = {.max_new_tokens = 12, .on_token = {}},
                     .metric = Metric::kVqa};
    EvalOptions loss = both, answers = both;
    loss.answers = answers.loss = false;
    const EvalResult got = evaluate_rows(run, file, both), losses = evaluate_rows(run, file, loss),
                     answered = evaluate_rows(run, file, answers);
    ASSERT_EQ(got.records.size(), 4u);
    EXPECT_EQ(got.supervised, losses.supervised);
    for (size_t i = 0; i < got.records.size(); ++i) {
      // float32 sums of at most 200 terms in another order
      EXPECT_NEAR(got.records[i].loss, losses.records[i].loss, 4e-6 * losses.records[i].loss) << i;
      EXPECT_EQ(got.records[i].answer, answered.records[i].answer) << i;
      EXPECT_EQ(got.records[i].answered, answered.records[i].answered) << i;
    }
  }
}

TEST(Evaluate, ARowWithoutAnAnswerLeavesARunItsReport) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval = rows_file(run);
  recipe.data.max_tokens = kMaxTokens;
  recipe.log.answers = 8;
  ASSERT_EQ(train::train(recipe), 0);
  const std::string report = test::slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(report.find("no_second"), std::string::npos);
  EXPECT_EQ(report.find("unanswered_row"), std::string::npos);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").back()["samples"], 4);
}

TEST(Evaluate, ABadRowIsNamedOnceHoweverOftenItIsMet) {
  const test::TinyRun run;
  run.dir().write("held_out.json", nlohmann::json::array({row("good", {{"What?", "red"}}),
                                                          row("bad", {{"<image>", "red"}})})
                                       .dump());
  Recipe recipe = run.recipe("out");
  recipe.data.eval = run.dir().file("held_out.json");
  recipe.data.on_bad_sample = "skip";
  recipe.train.eval_every_steps = 2;
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").size(), 3u);
  const std::vector<Json> skipped = test::events(recipe.output_dir, "sample_skipped");
  ASSERT_EQ(skipped.size(), 1u);
  const std::string sample = skipped[0]["sample"];
  EXPECT_TRUE(sample.starts_with("data.eval: ")) << sample;
  EXPECT_NE(sample.find("bad"), std::string::npos) << sample;
}

}  // namespace
}  // namespace lft::evaluate_test
