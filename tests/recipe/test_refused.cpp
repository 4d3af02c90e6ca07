// Recipes that are refused: each message names the line and the field.
#include <gtest/gtest.h>

#include "recipe/recipe_text.h"

namespace lft::recipe_test {
using namespace lft::recipe;
namespace {

struct Forged {
  const char* name;
  const char* text;  // appended to kMinimal: its first line is line 5
  std::vector<std::string> lines;
};

class ForgedRecipe : public ::testing::TestWithParam<Forged> {};

TEST_P(ForgedRecipe, IsRefusedWithLineAndPath) {
  std::vector<std::string> want = GetParam().lines;
  want.insert(want.begin(), "the recipe has " + std::to_string(want.size()) +
                                (want.size() == 1 ? " problem" : " problems"));
  EXPECT_EQ(problems(std::string(kMinimal) + GetParam().text), want);
}

INSTANTIATE_TEST_SUITE_P(
    F1, ForgedRecipe,
    ::testing::Values(
        Forged{"unknown",
               "lora:\n  rnk: 8\n",
               {"line 6: lora.rnk is not a recipe field (nearest: lora.rank)"}},
        Forged{"pattern_of_no_rank",
               "lora: {rank_pattern: {q_proj: 0}, alpha_pattern: [1]}\n",
               {"line 5: lora.rank_pattern is a mapping, expected a mapping of patterns, each "
                "once, to values: a whole number in [1, 65536]",
                "line 5: lora.alpha_pattern is [1], expected a mapping of patterns, each once, to "
                "values: a number in (0, 1e+06]"}},
        Forged{"pattern_twice",
               "lora:\n  rank_pattern:\n    q_proj: 2\n    q_proj: 3\n",
               {"line 7: lora.rank_pattern is a mapping, expected a mapping of patterns, each "
                "once, to values: a whole number in [1, 65536]"}},
        Forged{"unknown_in_flow",
               "lora: {alpha: 8,\n  rnk: 8}\n",
               {"line 6: lora.rnk is not a recipe field (nearest: lora.rank)"}},
        Forged{"unknown_top",
               "ful: [projector]\n",
               {"line 5: ful is not a recipe field (nearest: full)"}},
        Forged{"unknown_section",
               "optimizer: {lr: 1}\n",
               {"line 5: optimizer is not a recipe field (nearest: optim)"}},
        Forged{"wrong_section",
               "train: {lr: 1}\n",
               {"line 5: train.lr is not a recipe field (nearest: optim.lr)"}},
        Forged{"top_level_knob",
               "batch_size: 4\n",
               {"line 5: batch_size is not a recipe field (nearest: train.batch_size)"}},
        Forged{"far_from_all",
               "log:\n  zzzz: 1\n",
               {"line 6: log.zzzz is not a recipe field (known here: every_steps, tensorboard, "
                "answers, layer_grad_norms_every, "
                "layer_activation_norms_every, expect_first_loss)"}},
        Forged{"escape_in_key",
               "log:\n  \"a\\x1b[2Jzzzzzzzz\": 1\n",
               {"line 6: log.a\\x1b[2Jzzzzzzzz is not a recipe field (known here: every_steps, "
                "tensorboard, answers, layer_grad_norms_every, "
                "layer_activation_norms_every, expect_first_loss)"}},
        Forged{"duplicate",
               "lora:\n  rank: 8\n  alpha: 8\n  rank: 9\n",
               {"line 8: lora.rank is given twice (first on line 6)"}},
        Forged{"duplicate_section",
               "lora: {rank: 8}\nlora: {alpha: 8}\n",
               {"line 6: lora is given twice (first on line 5)"}},
        Forged{"quoted_number",
               "lora: {rank: \"8\"}\n",
               {"line 5: lora.rank is the text \"8\", expected a whole number in [1, 65536]"}},
        Forged{"octal",
               "lora: {rank: 010}\n",
               {"line 5: lora.rank is 010, expected a whole number in [1, 65536]"}},
        Forged{"octal_double",
               "optim: {eps: 010}\n",
               {"line 5: optim.eps is 010, expected a number in (0, 1]"}},
        Forged{"hex",
               "lora: {rank: 0x10}\n",
               {"line 5: lora.rank is 0x10, expected a whole number in [1, 65536]"}},
        Forged{
            "underscore",
            "train: {seed: 1_000}\n",
            {"line 5: train.seed is 1_000, expected a whole number in [0, 9223372036854775807]"}},
        Forged{"plus",
               "lora: {rank: +8}\n",
               {"line 5: lora.rank is +8, expected a whole number in [1, 65536]"}},
        Forged{"fraction",
               "lora: {rank: 8.0}\n",
               {"line 5: lora.rank is 8.0, expected a whole number in [1, 65536]"}},
        Forged{"two_to_64",
               "train: {seed: 18446744073709551616}\n",
               {"line 5: train.seed is 18446744073709551616, expected a whole number in [0, "
                "9223372036854775807]"}},
        Forged{"negative",
               "train: {seed: -1}\n",
               {"line 5: train.seed is -1, expected a whole number in [0, 9223372036854775807]"}},
        Forged{"zero_rank",
               "lora: {rank: 0}\n",
               {"line 5: lora.rank is 0, expected a whole number in [1, 65536]"}},
        Forged{"nan",
               "optim: {lr: .nan}\n",
               {"line 5: optim.lr is .nan, expected a number in [0, 10]"}},
        Forged{"nan_word",
               "optim: {lr: nan}\n",
               {"line 5: optim.lr is nan, expected a number in [0, 10]"}},
        Forged{"inf",
               "optim: {clip_grad_norm: .inf}\n",
               {"line 5: optim.clip_grad_norm is .inf, expected a number in [0, 1e+09]"}},
        Forged{"overflow",
               "optim: {lr: 1.0e400}\n",
               {"line 5: optim.lr is 1.0e400, expected a number in [0, 10]"}},
        Forged{"open_range",
               "lora: {dropout: 1}\n",
               {"line 5: lora.dropout is 1, expected a number in [0, 1)"}},
        Forged{"warmup",
               "optim: {warmup_ratio: 1.5}\n",
               {"line 5: optim.warmup_ratio is 1.5, expected a number in [0, 1]"}},
        Forged{"yes",
               "data2: 1\ntrain: {deterministic: yes}\n",
               {"line 5: data2 is not a recipe field (nearest: data)",
                "line 6: train.deterministic is yes, expected true or false"}},
        Forged{"y",
               "train: {deterministic: y}\n",
               {"line 5: train.deterministic is y, expected true or false"}},
        Forged{"on",
               "log:\n  tensorboard: on\n",
               {"line 6: log.tensorboard is on, expected true or false"}},
        Forged{"quoted_bool",
               "log:\n  tensorboard: 'true'\n",
               {"line 6: log.tensorboard is the text \"true\", expected true or false"}},
        Forged{"choice",
               "optim: {schedule: cosin}\n",
               {"line 5: optim.schedule is cosin, expected one of constant, linear, cosine, wsd"}},
        Forged{"empty_value",
               "lora:\n  rank:\n  alpha: 3\n",
               {"line 6: lora.rank is empty, expected a whole number in [1, 65536]"}},
        Forged{"empty_section",
               "lora:\n\noptim: {lr: 1}\n",
               {"line 5: lora is empty, expected a mapping of keys to values"}},
        Forged{"scalar_for_section",
               "lora: 8\n",
               {"line 5: lora is 8, expected a mapping of keys to values"}},
        Forged{"scalar_for_list",
               "full: projector\n",
               {"line 5: full is projector, expected a list, as [a, b], each one of projector, "
                "vision, llm, all"}},
        Forged{"bad_item",
               "full:\n  - projector\n  - lm\n",
               {"line 6: full is [projector, lm], expected a list, as [a, b], each one of "
                "projector, vision, llm, all"}},
        Forged{"three_betas",
               "optim: {betas: [0.9, 0.99, 0.999]}\n",
               {"line 5: optim.betas is [0.9, 0.99, 0.999], expected two numbers, as [a, b], each "
                "in [0, 1)"}},
        Forged{"map_for_number",
               "lora: {rank: {a: 1}}\n",
               {"line 5: lora.rank is a mapping, expected a whole number in [1, 65536]"}},
        Forged{"number_for_text",
               "lora: {init_from: 12}\n",
               {std::string("line 5: lora.init_from is 12, expected ") + kText}},
        Forged{"control_in_text",
               "lora: {init_from: \"a\\0b\"}\n",
               {std::string("line 5: lora.init_from is the text \"a\\x00b\", expected ") + kText}},
        Forged{
            "scope",
            "lora: {targets: [lm:q_proj, \"vision:\"]}\n",
            {"line 5: lora.targets contains \"lm:q_proj\", expected scope:pattern with a scope of "
             "llm, projector, vision",
             "line 5: lora.targets contains \"vision:\", expected scope:pattern with a scope of "
             "llm, projector, vision"}},
        Forged{"lora_and_full",
               "full: [vision]\nlora:\n  targets: [\"vision:q_proj\"]\n",
               {"line 7: lora.targets contains \"vision:q_proj\", but `full` trains vision whole: "
                "drop one of the two"}},
        Forged{"all_and_more",
               "full: [all, llm]\n",
               {"line 5: full names all and other parts: all includes them"}},
        Forged{"nothing_to_train",
               "lora: {targets: []}\n",
               {"line 5: lora.targets is empty: name layers to adapt, or parts to train in "
                "`full`"}},
        Forged{
            "global_batch_that_is_none",
            "train: {batch_size: 4, grad_accum: 2, global_batch: 16}\n",
            {"line 5: train.global_batch is not train.batch_size * train.grad_accum, 8: drop one "
             "of the two, or set train.grad_accum: auto"}},
        Forged{"global_batch_below_a_pass",
               "train: {batch_size: 4, global_batch: 3}\n",
               {"line 5: train.global_batch is below train.batch_size, 4"}},
        Forged{"grad_accum_word",
               "train: {grad_accum: automatic}\n",
               {"line 5: train.grad_accum is automatic, expected a whole number in [1, 65536], or "
                "auto"}},
        Forged{"floor_of_a_constant",
               "optim: {schedule: constant, min_lr_ratio: 0.1}\n",
               {"line 5: optim.min_lr_ratio has no effect with optim.schedule: constant"}},
        Forged{"decay_and_warmup_overlap",
               "optim: {schedule: wsd, warmup_ratio: 0.6, decay_ratio: 0.5}\n",
               {"line 5: optim.decay_ratio and optim.warmup_ratio are more than all steps"}},
        Forged{"eval_without_data",
               "train: {eval_every_steps: 5}\n",
               {"line 5: train.eval_every_steps needs data.eval or data.eval_share"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Recipe, HeldOutRowsAreNamedOrChosen) {
  EXPECT_TRUE(problems(kMinimal, {"data.eval_share=0.1", "train.eval_every_steps=5"}).empty());
  const auto both = problems(kMinimal, {"data.eval=a.json", "data.eval_share=0.1"});
  ASSERT_EQ(both.size(), 2U);  // the count, and which
  EXPECT_NE(both[1].find("data.eval_share holds out rows although data.eval names them"),
            std::string::npos)
      << both[1];
}

TEST(Recipe, ReportsEverythingAtOnceInFileOrder) {
  const auto lines = problems(
      "lora:\n  rank: 0\n  foo: 1\noptim: {lr: .nan}\nbar: 2\nmodel: {base_dtype: int8}\n");
  const std::vector<std::string> want = {
      "the recipe has 9 problems",
      "version is missing (format of this file)",
      "output_dir is missing (where the run writes; created if absent)",
      "data.train is missing (JSON, JSONL, CSV, TSV, tar, Parquet or Arrow (LLaVA, ShareGPT, "
      "OpenAI "
      "messages, or columns such as question and answer), a folder of such files, an imagefolder, "
      "DIR/dataset_info.json#NAME, or a folder of lft prepare; a list mixes several: of each an "
      "epoch takes weight (1, above 0) x rows, and image_root is data.image_root where it is not "
      "given)",
      "line 2: lora.rank is 0, expected a whole number in [1, 65536]",
      "line 3: lora.foo is not a recipe field (known here: variant, rank, alpha, dropout, targets, "
      "rank_pattern, alpha_pattern, init_from)",
      "line 4: optim.lr is .nan, expected a number in [0, 10]",
      "line 5: bar is not a recipe field (known here: version, output_dir, full, model, lora, "
      "objective, data, optim, precision, train, checkpoint, "
      "dist, log)",
      "line 6: model.path is missing (directory in HF layout: config.json, safetensors, tokenizer, "
      "processor files)",
  };
  ASSERT_EQ(lines.size(), want.size() + 1);
  EXPECT_EQ(
      std::vector<std::string>(lines.begin(), lines.begin() + static_cast<int64_t>(want.size())),
      want);
  EXPECT_EQ(lines.back(),
            "line 6: model.base_dtype is int8, expected one of auto, bf16, fp16, fp32, nf4, fp8");
}

TEST(Recipe, EmptyFileNamesWhatIsRequired) {
  for (const char* text : {"", "# nothing\n", "~\n", "{}\n"})
    EXPECT_EQ(problems(text).size(), 5u) << text;
  EXPECT_EQ(problems("hello\n").at(1),
            "line 1: a recipe is a mapping of keys to values, found hello");
  EXPECT_EQ(problems("version: 2\n").at(4),
            "line 1: version is 2, expected a whole number in [1, 1]");
}

TEST(Recipe, MissingRequiredKeyIsPlacedAtItsSection) {
  EXPECT_EQ(problems("version: 1\noutput_dir: a\ndata: {train: b}\nmodel:\n  base_dtype: auto\n")
                .at(1)
                .substr(0, 31),
            "line 4: model.path is missing (");
}

}  // namespace
}  // namespace lft::recipe_test
