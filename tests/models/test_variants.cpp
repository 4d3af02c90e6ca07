// Every registered variant against its declaration.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <set>

#include "models/lora/inject.h"
#include "models/lora/registry.h"
#include "models/tiny.h"

namespace lft::test {
namespace {

class Variants : public ::testing::TestWithParam<std::string> {
 protected:
  Variants() {
    const at::NoGradGuard no_grad;
    layer_->weight.copy_(fill_by_hash("layer.weight", {9, 12}));
    options_.variant = GetParam();
  }
  const Variant& variant_ = find_variant(GetParam());
  LoraOptions options_{.rank = 3, .alpha = 12};
  Linear layer_{12, 9, false, at::TensorOptions(at::kFloat)};
};

TEST_P(Variants, AnAdapterHasTheDeclaredTensors) {
  inject_lora({{"layer", "llm", layer_}}, options_, 1);
  const auto parameters = layer_->adapter()->named_parameters();
  ASSERT_EQ(parameters.size(), variant_.tensors.size());
  for (const AdapterTensor& tensor : variant_.tensors) {
    const at::Tensor* parameter = parameters.find(tensor.name);
    ASSERT_NE(parameter, nullptr) << tensor.name;
    EXPECT_EQ(parameter->sizes(), at::IntArrayRef(tensor.shape(9, 12, 3))) << tensor.name;
    EXPECT_EQ(parameter->scalar_type(), at::kFloat) << tensor.name;
    std::string parameter_name = tensor.stored;  // parameter names contain no dots
    std::replace(parameter_name.begin(), parameter_name.end(), '.', '_');
    EXPECT_TRUE(parameter_name.starts_with(tensor.name)) << tensor.name;
  }
  EXPECT_EQ(variant_.tensors[0].name, "lora_A");
  EXPECT_EQ(variant_.tensors[1].name, "lora_B");
}

TEST_P(Variants, AFreshAdapterChangesNothing) {
  const at::Tensor x = fill_by_hash("x", {5, 12}), before = layer_->forward(x);
  inject_lora({{"layer", "llm", layer_}}, options_, 1);
  EXPECT_LT((layer_->forward(x) - before).abs().max().item<double>(),
            32 * 0x1p-24 * before.abs().max().item<double>());
}

/// The two merges: of a model in memory, and of a saved adapter with the weight from the files.
TEST_P(Variants, WhatIsSavedMergesAsTheModelDoes) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = layer_->weight.clone();
  inject_lora({{"layer", "llm", layer_}}, options_, 1);
  for (auto& parameter : layer_->adapter()->named_parameters())
    parameter.value().add_(fill_by_hash(parameter.key(), parameter.value().sizes()), 0.3);
  NamedTensors saved;
  for (auto& parameter : layer_->adapter()->named_parameters())
    saved[parameter.key()] = parameter.value();
  if (variant_.saved != nullptr) saved = variant_.saved(*layer_->adapter());
  const LoraOptions as = saved_options(options_);
  const Variant& stored = find_variant(as.variant);
  ASSERT_EQ(saved.size(), stored.tensors.size());
  for (const AdapterTensor& tensor : stored.tensors)
    EXPECT_EQ(saved.at(tensor.name).sizes(), at::IntArrayRef(tensor.shape(9, 12, as.rank)));
  const at::Tensor want = layer_->adapter()->merged_oi(layer_->weight),
                   got = stored.merged_oi(weight, saved, lora_scale(as));
  EXPECT_GT((want - weight).abs().max().item<double>(), 0.1);
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-5);
}

TEST_P(Variants, NamesAreAsRegistered) {
  std::set<std::string> flags;
  for (const Variant& variant : variants()) {
    if (!variant.peft_flag.empty()) {
      EXPECT_TRUE(flags.insert(variant.peft_flag).second) << variant.peft_flag;
    }
  }
  EXPECT_NE(variants_help().find(GetParam() + ": " + variant_.help), std::string::npos);
  EXPECT_TRUE(variants().front().peft_flag.empty()) << "plain LoRA first";
}

INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variant_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lft::test
