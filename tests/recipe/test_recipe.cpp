// Recipes: what is read, and that a dump reads back as the same recipe.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "kernels/common/error.h"
#include "recipe/recipe_text.h"
#include "src/recipe/recipe.h"
#include "support/expect_error.h"

namespace lft::recipe_test {
using namespace lft::recipe;
namespace {

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
