// Several adapters over one base in memory: each computes what it computes alone, and the base
// stays as it is.
#include <gtest/gtest.h>

#include "hf/support.h"
#include "models/family/model.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_set.h"
#include "src/hf/weights.h"

namespace lft::adapter_set_test {
using namespace lft::test;
namespace {

class AdapterSets : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  AdapterSets() : base_(write_tiny_llava(temp_.file("base"))) {
    const TinyAdapter lora = adapter_in("d2");
    TinyAdapter whole = lora, other;
    whole.lora.erase("model.multi_modal_projector.linear_1");
    whole.full = projector_tensors();
    whole.config["modules_to_save"] = {"multi_modal_projector"};
    other.lora = {{"model.language_model.layers.0.self_attn.q_proj", {32, 32}},
                  {"model.language_model.layers.1.mlp.up_proj", {32, 48}}};
    other.config["use_rslora"] = true;
    for (const TinyAdapter& one : {lora, whole, other})
      dirs_.push_back(one.write(temp_.file("a" + std::to_string(dirs_.size()))));
  }
  Model alone(const std::string& dir) {
    Model model = load_tiny(base_, GetParam());
    load_adapter(model, AdapterDir::open(dir));
    keep_shadows(*model, GetParam());
    model->eval();
    return model;
  }
  TempDir temp_;
  std::string base_;
  std::vector<std::string> dirs_;
};

TEST_P(AdapterSets, EachComputesAsAloneInAnyOrder) {
  Model plain = load_tiny(base_, GetParam());
  std::vector<at::Tensor> want = {logits_of(plain)};
  for (const std::string& dir : dirs_) {
    Model model = alone(dir);
    want.push_back(logits_of(model));
    EXPECT_FALSE(want.back().equal(want.front()));
  }
  Model shared = load_tiny(base_, GetParam());
  AdapterSet set(shared);
  for (size_t i = 0; i < dirs_.size(); ++i)
    EXPECT_EQ(set.add(AdapterDir::open(dirs_[i]), GetParam()), i + 1);
  for (const size_t number : {1, 0, 2, 3, 2, 2, 0, 1, 3, 0}) {
    set.attach(number);
    EXPECT_TRUE(logits_of(shared).equal(want[number])) << number;
  }
}

TEST_P(AdapterSets, TheBaseIsInMemoryOnce) {
  Model shared = load_tiny(base_, GetParam());
  std::map<std::string, const void*> before;
  for (const auto& [name, tensor] : model_parameters(*shared)) before[name] = tensor.data_ptr();
  AdapterSet set(shared);
  for (const std::string& dir : dirs_) set.add(AdapterDir::open(dir), GetParam());
  for (size_t number = 0; number <= dirs_.size(); ++number) {
    set.attach(number);
    for (const auto& [name, tensor] : model_parameters(*shared)) {
      const bool replaced = number == 2 && name.starts_with("multi_modal_projector.");
      EXPECT_EQ(tensor.data_ptr() != before[name], replaced) << number << " " << name;
    }
  }
}

TEST_P(AdapterSets, AnAdapterThatDoesNotFitLeavesTheOthers) {
  Model shared = load_tiny(base_, GetParam());
  AdapterSet set(shared);
  set.add(AdapterDir::open(dirs_[0]), GetParam());
  const at::Tensor want = logits_of(shared);
  TinyAdapter bad;
  bad.lora = {{"model.language_model.layers.0.self_attn.q_proj", {31, 32}}};
  const std::string dir = bad.write(temp_.file("bad"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "does not fit", set.add(AdapterDir::open(dir), GetParam()));
  set.attach(1);
  EXPECT_TRUE(logits_of(shared).equal(want));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AdapterSets, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace lft::adapter_set_test
