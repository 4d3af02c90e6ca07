// Non-finite values in an evaluation or an answer: the row, token and module of their origin,
// and unchanged results for the other rows.
#include <gtest/gtest.h>

#include <cmath>

#include "debug/stored_model.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/infer/evaluate.h"
#include "support/expect_error.h"
#include "support/poison.h"
#include "support/prompt_of.h"
#include "train/tiny_run.h"

namespace lft::non_finite_test {
using namespace lft::data;
using namespace lft::hf;
using namespace lft::infer;
using namespace lft::family;
using namespace lft::text;
namespace {

constexpr int64_t kZ = 3 + 'z';  // token id (tiny_run.h)

nlohmann::json row(const std::string& id, const std::string& question,
                   const std::string& answer = "red") {
  return {{"id", id},
          {"conversations",
           {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", answer}}}}};
}

class NonFiniteRows : public ::testing::Test {
 protected:
  /// Rows a, b and c; b's question contains a "z", a token that overflows in this model.
  void load(int layer, float up, const nlohmann::json& b = row("b", "A z?")) {
    test::change_model(run_, [&](auto& tensors) { test::poison_token(tensors, kZ, layer, up); });
    const ModelDir dir = ModelDir::open(run_.model());
    tokenizer_ = Tokenizer::load(run_.model());
    encode_ =
        encode_options(run_.model(), dir.config, *tokenizer_, {{"llava-hf", "pad"}, 200}, nullptr);
    model_ = load_model(dir, at::kFloat, at::kCPU);
    rows_ = open_dataset(
        run_.dir().write("rows.json", nlohmann::json{row("a", "Who?"), b, row("c", "How?")}.dump()),
        "", *tokenizer_, encode_);
  }

  EvalResult evaluated(at::ScalarType compute, EvalOptions options = {}) {
    options.batch_size = 3;
    options.workers = 1;
    options.decode.max_new_tokens = 3;
    options.compute = compute;
    return evaluate(model_, *rows_, *tokenizer_, encode_, options);
  }

  /// The position of the "z" among row b's ids.
  int64_t place() const {
    const std::vector<int64_t> ids = rows_->get(1).input_ids;
    return std::ranges::find(ids, kZ) - ids.begin();
  }

  test::TinyRun run_;
  std::unique_ptr<Tokenizer> tokenizer_;
  EncodeOptions encode_;
  Model model_{nullptr};
  std::unique_ptr<Dataset> rows_;
};

TEST_F(NonFiniteRows, AnEvaluationNamesRowTokenAndModuleInFp16) {
  load(0, 6e4f);
  EXPECT_EQ(evaluated(at::kFloat).not_finite, 0);
  for (const bool packed : {false, true}) {
    const EvalResult result = evaluated(at::kHalf, {.max_tokens = packed ? 400 : 0});
    EXPECT_EQ(result.not_finite, 1);
    EXPECT_FALSE(std::isfinite(result.loss));
    ASSERT_EQ(result.records.size(), 3u);
    for (const EvalRecord& record : result.records) {
      const bool good = record.id != "b";
      EXPECT_EQ(record.bad.has_value(), !good) << record.id;
      EXPECT_EQ(record.answered, good) << record.id;
      EXPECT_EQ(std::isfinite(record.loss), good) << record.id;
    }
    const NonFinite& bad = *result.records[1].bad;
    EXPECT_EQ(bad.module, test::kLayers + "0.mlp.up_proj");
    EXPECT_EQ(bad.place.position, place());
    EXPECT_EQ(bad.token, kZ);
    const Error error = not_finite_rows(result, *tokenizer_, at::kHalf);
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_EQ(error.info().where, "b, position " + std::to_string(place()) + " (token \"<0x7A>\")");
    EXPECT_NE(error.info().found.find("mlp.up_proj is the first that is not finite, in fp16"),
              std::string::npos)
        << error.info().found;
    EXPECT_NE(error.info().next.find("bf16 or fp32"), std::string::npos) << error.info().next;
  }
}

TEST_F(NonFiniteRows, AnEvaluationNamesALaterLayerInFp32) {
  load(1, 3e38f, row("b", "How?", "azure"));  // the last layer runs only where a token is predicted
  const EvalResult result = evaluated(at::kFloat);
  ASSERT_EQ(result.not_finite, 1);
  EXPECT_EQ(result.records[1].bad->module, test::kLayers + "1.mlp.up_proj");
  EXPECT_EQ(result.records[1].bad->place.position, place());
  EXPECT_NE(not_finite_rows(result, *tokenizer_, at::kFloat).info().next.find("lft debug base"),
            std::string::npos);
}

/// Only the logits of a greedy answer are bad: the loss of the rows is not computed.
TEST_F(NonFiniteRows, AnswersEndAloneWithOrWithoutATemperature) {
  load(0, 6e4f);
  for (const double temperature : {0.0, 0.7}) {
    EvalOptions options{.loss = false};
    options.decode.temperature = temperature;
    options.decode.top_k = 5;
    const EvalResult result = evaluated(at::kHalf, options);
    EXPECT_EQ(result.not_finite, 1);
    EXPECT_EQ(result.answered, 2);
    EXPECT_EQ(result.records[1].bad->module, test::kLayers + "0.mlp.up_proj");
    EXPECT_EQ(result.records[1].bad->place.position, place());
    Sample prompt = test::prompt_of(rows_->get(1));
    EXPECT_LFT_ERROR(ErrorKind::kNumeric, "the model's output is not finite",
                     generate(model_, prompt, encode_, options.decode, at::kHalf));
    EXPECT_LFT_ERROR(
        ErrorKind::kNumeric, "(token \"<0x7A>\")",
        generate(model_, prompt, encode_, options.decode, at::kHalf, tokenizer_.get()));
  }
}

/// The token is sampled, and the values after it are not finite: ids up to it are kept, and the
/// row's loss is finite.
TEST_F(NonFiniteRows, AnAnswerThatDrawsTheTokenEndsWithIt) {
  load(0, 6e4f);
  const Sample prompt = test::prompt_of(rows_->get(0));
  const int64_t drawn =
      generate(model_, prompt, encode_, {.max_new_tokens = 1, .on_token = {}}, at::kHalf).at(0);
  ASSERT_EQ(std::ranges::count(rows_->get(0).input_ids, drawn), 0);
  test::change_model(run_, [&](auto& tensors) { test::poison_token(tensors, drawn, 0, 6e4f); });
  model_ = load_model(ModelDir::open(run_.model()), at::kFloat, at::kCPU);
  const EvalResult result = evaluated(at::kHalf);
  ASSERT_GE(result.not_finite, 1);
  const EvalRecord& record = result.records[0];
  EXPECT_TRUE(std::isfinite(record.loss));
  EXPECT_FALSE(record.answered);
  ASSERT_TRUE(record.bad);
  EXPECT_EQ(record.bad->answer, std::vector<int64_t>{drawn});
  EXPECT_EQ(record.bad->token, drawn);
  EXPECT_EQ(record.bad->place.position, std::ssize(prompt.input_ids));
  EXPECT_EQ(record.bad->module, test::kLayers + "0.mlp.up_proj");
}

TEST(PickTokenAtTheLimits, ATemperatureNextToZeroTakesTheLargest) {
  const at::Tensor logits = at::tensor({0.5f, 2.0f, -1.0f, 1.0f});
  GenerateOptions options;
  options.temperature = 1e-310;
  for (const double uniform : {0.0, 0.999999}) EXPECT_EQ(pick_token(logits, options, uniform), 1);
}

}  // namespace
}  // namespace lft::non_finite_test
