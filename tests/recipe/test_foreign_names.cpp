// Field names of other tools: each error names lft's field, at any position.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/common/error.h"
#include "src/recipe/foreign_names.h"
#include "src/recipe/recipe.h"
#include "src/recipe/strict_reader.h"

namespace lft::foreign_names_test {
using namespace lft::recipe;
namespace {

/// The error of a recipe that is valid except for `extra` and `sets`.
std::string refused(const std::string& extra, const std::vector<std::string>& sets = {}) {
  try {
    parse_recipe("version: 1\noutput_dir: a\nmodel: {path: b}\ndata: {train: c}\n" + extra,
                 "r.yaml", sets);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.info().what;
  }
  return "";
}

TEST(ForeignNames, EachNamesAFieldThatThereIsAndIsNone) {
  const std::vector<std::string> fields = field_names().fields;
  std::set<std::string> last_parts, names;
  for (const std::string& field : fields) last_parts.insert(field.substr(field.rfind('.') + 1));
  for (const ForeignName& each : foreign_names()) {
    EXPECT_NE(std::ranges::find(fields, each.field), fields.end())
        << each.name << ": " << each.field;
    EXPECT_FALSE(last_parts.contains(each.name)) << each.name << " is a field of lft's";
    EXPECT_TRUE(names.insert(each.name).second) << each.name << " stands there twice";
  }
}

TEST(ForeignNames, EachIsAnsweredAtEveryLevelAndOnTheCommandLine) {
  for (const ForeignName& each : foreign_names()) {
    const std::string name = each.name, answer = std::string("(in lft: ") + each.field;
    EXPECT_NE(refused(name + ": 1\n").find("line 5: " + name + " is not a recipe field " + answer),
              std::string::npos)
        << refused(name + ": 1\n");
    EXPECT_NE(refused("train: {" + name + ": 1}\n").find("train." + name + " is not"),
              std::string::npos);
    EXPECT_NE(refused("precision: {loss_scale: {" + name + ": 1}}\n").find(answer),
              std::string::npos);
    for (const std::string& set : {name + "=1", "lora." + name + "=1"})
      EXPECT_NE(refused("", {set}).find(answer), std::string::npos) << set;
  }
}

TEST(ForeignNames, SayWhatToWriteThereInAnySpelling) {
  EXPECT_EQ(refused("lora: {r: 8}\n"),
            "the recipe has 1 problem\nline 5: lora.r is not a recipe field (in lft: lora.rank)");
  EXPECT_EQ(lft_name("lora.all-linear"), "lora.targets, as [\"llm:all-linear\"]");
  EXPECT_EQ(lft_name("use_dora"), "lora.variant, dora");
  EXPECT_EQ(lft_name("pissa_init"), "lora.variant, pissa");
  EXPECT_EQ(lft_name("BF16"), "precision.compute, bf16");
  EXPECT_NE(lft_name("max_samples").find("lft debug subset RECIPE -n N"), std::string::npos);
  EXPECT_NE(lft_name("image_max_pixels").find("Qwen-VL, InternVL, SmolVLM"), std::string::npos);
  EXPECT_EQ(lft_name("train.perDevice"), "");
  EXPECT_EQ(lft_name("learning_rate.x"), "");
}

}  // namespace
}  // namespace lft::foreign_names_test
