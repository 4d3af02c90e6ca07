// Recipes: what is read, what is refused with which message, and that a dump reads back as the
// same recipe.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "kernels/common/error.h"
#include "src/recipe/recipe.h"
#include "support/expect_error.h"

namespace lft::recipe_test {
using namespace lft::recipe;
namespace {

const char kMinimal[] =
    "version: 1\n"
    "output_dir: runs/a\n"
    "model: {path: ckpt}\n"
    "data: {train: rows.json}\n";

std::vector<std::string> problems(const std::string& text,
                                  const std::vector<std::string>& sets = {}) {
  try {
    parse_recipe(text, "r.yaml", sets);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_EQ(e.info().where, "r.yaml");
    std::vector<std::string> lines;
    std::istringstream stream(e.info().what);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  return {};
}

// A recipe with every field at its default, except the required ones, full, projector_lr
// and data.eval.
const char kFull[] =
    R"(# lft train recipes/llava-lora.yaml
version: 1
output_dir: runs/llava-lora
model:
  path: checkpoints/llava-1.5-7b-hf   # HF layout
  init: checkpoint
  base_dtype: auto
lora:
  variant: lora
  rank: 128
  alpha: 256
  dropout: 0.05
  targets: ["llm:all-linear"]
  rank_pattern: {}
  alpha_pattern: {}
full: [projector]
data:
  train: data/llava_instruct.json
  eval: data/val.json
  eval_share: 0
  image_root: data/images
  follow_symlinks: false
  max_pixels: 64000000
  max_side: 65535
  template: llava-v1
  image_fit: pad
  alpha: drop
  max_tokens: 2048
  on_bad_sample: error
  unknown_keys: warn
  columns: {}
  max_bad: 10
  shuffle: true
  group_by_length: false
  workers: 4
  image_cache_mb: 1024
optim: {name: adamw, lr: 2.0e-4, projector_lr: 2.0e-5, betas: [0.9, 0.999], eps: 1.0e-8, )"
    R"(weight_decay: 0, clip_grad_norm: 1.0, schedule: cosine, warmup_ratio: 0.03, offload: false}
precision:
  compute: auto
  loss_scale: {init: 65536, growth_factor: 2, backoff_factor: 0.5, growth_interval: 2000}
  recovery: fp32
  lr_backoff: 0.5
train: {epochs: 1, max_steps: 0, batch_size: 16, grad_accum: auto, max_tokens_per_step: 0, )"
    R"(activation_checkpointing: none, activation_offload: false, cuda_graphs: auto, )"
    R"(worst_first: true, seed: 42, deterministic: true, shard: none}
checkpoint: {every_steps: 500, keep: 2, at_step_zero: true}
dist: {timeout_s: 600}
log: {every_steps: 1, tensorboard: true, layer_grad_norms_every: 100, )"
    R"(layer_activation_norms_every: 100}
)";

TEST(Recipe, ReadsEveryFieldOfTheFullExample) {
  const Recipe r = parse_recipe(kFull, "r.yaml");
  EXPECT_EQ(r.model.path, "checkpoints/llava-1.5-7b-hf");
  EXPECT_EQ(r.full, std::vector<std::string>{"projector"});
  EXPECT_EQ(r.data.eval, "data/val.json");
  EXPECT_EQ(r.data.chat_template, "llava-v1");
  EXPECT_EQ(r.optim.lr, 2e-4);
  EXPECT_EQ(r.optim.projector_lr, 2e-5);
  EXPECT_EQ(r.optim.betas, (std::array<double, 2>{0.9, 0.999}));
  EXPECT_EQ(r.precision.loss_scale.growth_interval, 2000);
  EXPECT_EQ(r.log.layer_grad_norms_every, 100);
}

TEST(Recipe, TrainMayListSources) {
  const std::string head = "version: 1\noutput_dir: a\nmodel: {path: b}\n";
  const Recipe r = parse_recipe(head +
                                    "data:\n  train:\n    - {path: a.json, weight: 0.5}\n"
                                    "    - path: b.tar\n      image_root: img\n",
                                "r.yaml");
  const std::vector<Source> want = {{.path = "a.json", .image_root = {}, .weight = 0.5},
                                    {.path = "b.tar", .image_root = "img"}};
  EXPECT_EQ(r.data.train.list, want);
  EXPECT_EQ(r.data.train.sources(), want);
  EXPECT_EQ(r.data.train.text(), "a.json, b.tar");
  EXPECT_EQ(parse_recipe(dump_recipe(r), "dumped").data.train, r.data.train);
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml").data.train.sources(),
            (std::vector<Source>{{.path = "rows.json", .image_root = {}}}));
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"data.train=[{path: x, weight: 2}]"})
                .data.train.list.at(0)
                .weight,
            2);
  for (const char* const bad :
       {"[]", "[a.json]", "[{path: a, weight: 0}]", "[{path: a, weight: -1}]",
        "[{path: a, weight: .inf}]", "[{path: a, weight: \"1\"}]", "[{weight: 1}]", "{path: a}",
        "[{path: a, wieght: 1}]", "[{path: a, path: b}]", "[{path: a, weight: 2000000}]", "[{}]",
        "[{path: \"\"}]"}) {
    const std::vector<std::string> found =
        problems(head + "data: {train: " + std::string(bad) + "}\n");
    ASSERT_EQ(found.size(), 2u) << bad;
    EXPECT_NE(found[1].find("line 4: data.train is "), std::string::npos) << found[1];
  }
}

TEST(Recipe, PatternsKeepTheirOrderAndReadBack) {
  const std::string text =
      std::string(kMinimal) +
      "lora: {rank_pattern: {v_proj: 4, \"llm:*.mlp.*\": 8}, alpha_pattern: {q_proj: 1.5}}\n";
  const Recipe r = parse_recipe(text, "r.yaml");
  EXPECT_EQ(r.lora.rank_pattern, (ByPattern<int64_t>{{"v_proj", 4}, {"llm:*.mlp.*", 8}}));
  EXPECT_EQ(r.lora.alpha_pattern, (ByPattern<double>{{"q_proj", 1.5}}));
  EXPECT_EQ(parse_recipe(dump_recipe(r), "r.yaml").lora.rank_pattern, r.lora.rank_pattern);
  const Recipe set = parse_recipe(kMinimal, "r.yaml", {"lora.rank_pattern={o_proj: 2}"});
  EXPECT_EQ(set.lora.rank_pattern, (ByPattern<int64_t>{{"o_proj", 2}}));
}

TEST(Recipe, ColumnsAreNamedByWhatTheyAre) {
  const Recipe r = parse_recipe(kMinimal, "r.yaml", {"data.columns={question: q, image: my img}"});
  EXPECT_EQ(r.data.columns, (ByPattern<std::string>{{"question", "q"}, {"image", "my img"}}));
  EXPECT_EQ(parse_recipe(dump_recipe(r), "r.yaml").data.columns, r.data.columns);
  for (const char* const bad : {"{qestion: q}", "{question: 3}", "{question: \"\"}", "[question]",
                                "{question: a, question: b}", "{question: [a]}"}) {
    const std::string block = test::thrown_text(
        ErrorKind::kUsage,
        [&] { parse_recipe(kMinimal, "r.yaml", {"data.columns=" + std::string(bad)}); }, __FILE__,
        __LINE__);
    EXPECT_NE(block.find("data.columns is "), std::string::npos) << block;
    EXPECT_NE(block.find("question, answer, image"), std::string::npos) << block;
  }
}

TEST(Recipe, DefaultsAreThoseOfTheFullExample) {
  Recipe full = parse_recipe(kFull, "r.yaml");
  const Recipe minimal = parse_recipe(kMinimal, "r.yaml");
  full.output_dir = minimal.output_dir;
  full.model.path = minimal.model.path;
  full.data.train = minimal.data.train;
  full.full = {};
  full.data.eval = full.data.image_root = "";
  full.data.chat_template = "auto";  // the example has LLaVA's values
  full.data.image_fit = ImageFit::kAuto;
  full.optim.projector_lr = -1;
  EXPECT_EQ(dump_recipe(full), dump_recipe(minimal));
}

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

const char kText[] =
    "text on one line (in quotes where it looks like a number, true, false or null)";
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
        Forged{"scope",
               "lora: {targets: [lm:q_proj, \"vision:\"]}\n",
               {"line 5: lora.targets holds \"lm:q_proj\", expected scope:pattern with a scope of "
                "llm, projector, vision",
                "line 5: lora.targets holds \"vision:\", expected scope:pattern with a scope of "
                "llm, projector, vision"}},
        Forged{"lora_and_full",
               "full: [vision]\nlora:\n  targets: [\"vision:q_proj\"]\n",
               {"line 7: lora.targets holds \"vision:q_proj\", but `full` trains vision whole: "
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
  EXPECT_NE(both[1].find("data.eval_share holds rows out where data.eval names them"),
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

TEST(Recipe, NullMeansNotGivenWhereAFieldMayBeAbsent) {
  const Recipe r = parse_recipe(
      std::string(kMinimal) + "lora: {init_from: null}\noptim: {projector_lr: ~}\n", "r.yaml");
  EXPECT_EQ(r.lora.init_from, "");
  EXPECT_EQ(r.optim.projector_lr, -1);
}

TEST(Recipe, WindowsLineEndsAndBlockStyleRead) {
  const Recipe r = parse_recipe(
      "version: 1\r\noutput_dir: a b\r\nmodel:\r\n  path: 'x'\r\ndata:\r\n  train: |-\r\n    "
      "t.json\r\nlora:\r\n  targets:\r\n  - "
      "llm:q\r\n",
      "r.yaml");
  EXPECT_EQ(r.output_dir, "a b");
  EXPECT_EQ(r.data.train, "t.json");
  EXPECT_EQ(r.lora.targets, std::vector<std::string>{"llm:q"});
}

TEST(RecipeSet, OverridesAddsAndReplacesABadValue) {
  const std::string text = std::string(kMinimal) + "lora: {rank: zero}\n";
  const Recipe r = parse_recipe(
      text, "r.yaml",
      {"lora.rank=8", "optim.lr=2e-4", "full=[projector]", "data.eval=val.json", "lora.rank=9",
       "precision.loss_scale.init=128", "lora.targets=[llm:all-linear, 'vision:q_proj']"});
  EXPECT_EQ(r.lora.rank, 9);
  EXPECT_EQ(r.optim.lr, 2e-4);
  EXPECT_EQ(r.full, std::vector<std::string>{"projector"});
  EXPECT_EQ(r.data.eval, "val.json");
  EXPECT_EQ(r.precision.loss_scale.init, 128);
  EXPECT_EQ(r.lora.targets, (std::vector<std::string>{"llm:all-linear", "vision:q_proj"}));
}

TEST(RecipeSet, NamesTheOverrideThatIsWrong) {
  const auto lines = problems(kMinimal, {"lora.rnk=8", "lora.rank=0", "lora", "lora={rank: 8}",
                                         "lora.alpha=&a 3", "data.train=", "a.b.c.d.e.f=1"});
  const std::vector<std::string> want = {
      "the recipe has 7 problems",
      "--set lora.rank=0: lora.rank is 0, expected a whole number in [1, 65536]",
      std::string("--set data.train=: data.train is empty, expected ") + kText +
          ", or a list of {path: text, image_root: text, weight: a number in (0, 1000000]}",
      "--set lora.rnk=8: lora.rnk is not a recipe field (nearest: lora.rank)",
      "--set lora: expected key=value",
      "--set lora={rank: 8}: lora is a section; set its fields one by one",
      "--set lora.alpha=&a 3: line 1: anchors (&) are not allowed in a recipe: write the value out",
  };
  ASSERT_EQ(lines.size(), want.size() + 1);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(lines[i], want[i]);
}

TEST(RecipeSet, DoesNotHideAFileThatHasSomethingElseThere) {
  EXPECT_EQ(problems(std::string(kMinimal) + "lora: 8\n", {"lora.rank=8"}).at(1),
            "line 5: lora is 8, expected a mapping of keys to values");
}

TEST(RecipeFile, MissingFileAndDirectoryAreUsageErrors) {
  for (const std::string path : {"/nonexistent/r.yaml", "/"}) {
    try {
      read_recipe(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_NE((e.info().what + e.info().where).find(path), std::string::npos);
    }
  }
}

TEST(RecipeFile, ReadsFromDisk) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lft_recipe_" + std::to_string(std::random_device{}()) + ".yaml");
  std::ofstream(path) << kFull;
  EXPECT_EQ(dump_recipe(read_recipe(path)), dump_recipe(parse_recipe(kFull, "r.yaml")));
  std::ofstream(path, std::ios::app) << std::string(2 << 20, '#');
  EXPECT_THROW(read_recipe(path), Error);
  std::filesystem::remove(path);
}

TEST(RecipeDump, ReadsBackToTheSameRecipe) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 200; ++i) {
    Recipe r = parse_recipe(kMinimal, "r.yaml");
    r.optim.lr = uniform(rng) * std::pow(10, -static_cast<int>(rng() % 9));
    r.optim.betas = {uniform(rng), uniform(rng)};
    r.optim.eps = std::pow(10, -static_cast<int>(rng() % 30));
    r.lora.alpha = 1 + static_cast<double>(rng() % 1000000 - 1) * uniform(rng);
    r.train.seed = static_cast<int64_t>(rng() >> 1);
    const Recipe back = parse_recipe(dump_recipe(r), "dump");
    EXPECT_EQ(back.optim.lr, r.optim.lr);
    EXPECT_EQ(back.optim.betas, r.optim.betas);
    EXPECT_EQ(back.optim.eps, r.optim.eps);
    EXPECT_EQ(back.lora.alpha, r.lora.alpha);
    EXPECT_EQ(back.train.seed, r.train.seed);
    EXPECT_EQ(dump_recipe(back), dump_recipe(r));
  }
}

TEST(RecipeDump, QuotesTextThatYamlWouldMisread) {
  for (const char* text : {"yes",
                           "NO",
                           "on",
                           "null",
                           "1e3",
                           "010",
                           "2024-01-01",
                           "12:30",
                           "a: b",
                           "#x",
                           "\xc3\xa9t\xc3\xa9",
                           "a\"b\\c",
                           "- x",
                           "*a",
                           "&a",
                           "!t",
                           "{a}",
                           ".5",
                           "..",
                           "%x",
                           "a # b",
                           " a",
                           "~",
                           "=",
                           "<<",
                           "@x",
                           "`x"}) {
    Recipe r = parse_recipe(kMinimal, "r.yaml");
    r.data.image_root = text;
    r.lora.targets = {"llm:" + std::string(text)};
    const Recipe back = parse_recipe(dump_recipe(r), "dump");
    EXPECT_EQ(back.data.image_root, text);
    EXPECT_EQ(back.lora.targets, r.lora.targets);
  }
}

TEST(RecipeDump, WritesNumbersEveryYamlReaderTakesForNumbers) {
  const std::string dump = dump_recipe(parse_recipe(kFull, "r.yaml"));
  EXPECT_NE(dump.find("  lr: 2.0e-04\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("  projector_lr: 2.0e-05\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("  eps: 1.0e-08\n"), std::string::npos);
  EXPECT_NE(dump.find("  weight_decay: 0.0\n"), std::string::npos);
  EXPECT_NE(dump.find("  targets: [\"llm:all-linear\"]\n"), std::string::npos);
  EXPECT_NE(dump.find("  init_from: null\n"), std::string::npos);
}

TEST(RecipeReference, HasOneRowAField) {
  const std::string table = recipe_reference();
  EXPECT_NE(table.find("| `lora.rank` | whole number | `128` | in [1, 65536] | inner dimension of "
                       "the update |\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("| `optim.projector_lr` | number | none | in [0, 10] |"), std::string::npos);
  EXPECT_NE(table.find("| `precision.loss_scale.init` |"), std::string::npos);
  EXPECT_NE(table.find("| `data.train` | text, or list of {path, image_root, weight} | required |"),
            std::string::npos);
}

}  // namespace
}  // namespace lft::recipe_test
