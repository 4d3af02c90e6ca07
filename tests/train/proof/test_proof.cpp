// The trainability check: each way in which a run would train nothing, built on purpose, and that
// the check changes no bit.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/family/model.h"
#include "models/loss_sum.h"
#include "src/data/batch.h"
#include "src/train/inputs/run_model.h"
#include "src/train/optim/adamw.h"
#include "src/train/proof/proof.h"
#include "support/llava.h"
#include "train/proof_fixture.h"

namespace lft::proof_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::layers;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::train;
namespace {

using ProofTest = test::ProofFixture;

TEST_F(ProofTest, OneRowAModuleWithTheNormsOfAPlainBackwardPass) {
  adapt({"llm:all-linear"}, {"projector"}, /*projector_lr=*/3e-3);
  const TrainabilityReport proof = prove();
  ASSERT_EQ(proof.rows.size(), 14u + 2u);
  (test::loss_sum(model, collate(probe.samples, probe.encode, at::kCPU)) /
   static_cast<double>(probe.samples[0].supervised()))
      .backward();
  const auto norm = [&](const std::string& name) {
    return at::norm(tensor(name).grad().to(at::kDouble)).item<double>();
  };
  int64_t trainable = 0;
  for (const ProofRow& row : proof.rows) {
    trainable += row.parameters;
    EXPECT_TRUE(row.reachable) << row.module;
    EXPECT_EQ(row.dtype, "fp32");
    EXPECT_EQ(row.adapter, row.scope == "llm");
    EXPECT_EQ(row.group, row.adapter ? "base" : "projector");
    EXPECT_EQ(row.lr, row.adapter ? 1e-2 : 3e-3);
    EXPECT_GT(row.grad_norm_b, 0) << row.module;
    if (row.adapter) {
      EXPECT_EQ(row.grad_norm_a, 0) << row.module;  // B is 0
      EXPECT_NEAR(row.grad_norm_b, norm(row.module + ".lora_B.weight"), 1e-12 * row.grad_norm_b)
          << row.module;
    } else {
      EXPECT_NEAR(row.grad_norm_b,
                  std::hypot(norm(row.module + ".weight"), norm(row.module + ".bias")),
                  1e-12 * row.grad_norm_b);
    }
  }
  // Rank 4 on q, o (32 to 32), k, v (32 to 16), gate, up, down (between 32 and 48) of two layers;
  // 24 to 32 and 32 to 32 with biases.
  const int64_t adapters = 2 * 4 * (2 * 64 + 2 * 48 + 3 * 80),
                projector = 24 * 32 + 32 + 32 * 32 + 32;
  EXPECT_EQ(proof.trainable, adapters + projector);
  EXPECT_EQ(trainable, proof.trainable);
  int64_t base = 0;
  for (const TensorSpec& spec : test::tensors_of(model->config)) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    base += count;
  }
  EXPECT_EQ(proof.total, base + adapters);
  EXPECT_EQ(proof.probe_ids, std::vector<std::string>{"s1"});
  EXPECT_TRUE(proof.probe_finite);
}

TEST_F(ProofTest, AnAdapterWhoseBHasItsOwnRateNamesBothGroups) {
  adapt({"llm:all-linear"}, {"projector"}, /*projector_lr=*/3e-3, /*b_ratio=*/16);
  const TrainabilityReport proof = prove();
  for (const ProofRow& row : proof.rows) {
    EXPECT_EQ(row.group, row.adapter ? "base, base B" : "projector");
    EXPECT_EQ(row.lr, row.adapter ? 1e-2 : 3e-3);
    EXPECT_EQ(row.lr_b, row.adapter ? 16 * 1e-2 : 3e-3);
  }
  const Json json = trainability_json(proof);
  for (const Json& module : json.at("modules")) {
    EXPECT_EQ(module.contains("lr_b"), module.at("kind") == "adapter") << module;
    EXPECT_EQ(module.value("lr_b", 0.16), 0.16) << module;
  }
  const std::vector<std::string> lines = trainability_table(proof);
  EXPECT_EQ(std::ranges::count(lines,
                               "lr         projector: 0.003; base, base B: 0.01 and 0.16; all "
                               "modules in fp32"),
            1)
      << testing::PrintToString(lines);
}

TEST_F(ProofTest, LooksWithoutTouching) {
  adapt({"llm:all-linear"}, {"projector"});
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor random = generator.get_state();
  const std::vector<at::Tensor> before = everything();
  TrainabilityReport proof = prove();
  prove_second_step(model, trainables, probe, proof);
  expect_bits(before, everything());
  at::Tensor a = tensor("language_model.model.layers.0.self_attn.q_proj.lora_A.weight");
  const auto hook =
      a.register_hook([](const at::Tensor& gradient) { return at::zeros_like(gradient); });
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "with B off zero",
                   prove_second_step(model, trainables, probe, proof));
  a.remove_hook(hook);
  expect_bits(before, everything());
  EXPECT_TRUE(at::equal(random, generator.get_state()));
  for (const Trainable& trainable : trainables) {
    EXPECT_FALSE(trainable.tensor.grad().defined()) << trainable.name;
    EXPECT_TRUE(trainable.tensor.requires_grad()) << trainable.name;
  }
}

TEST_F(ProofTest, TheSecondStepGivesEveryAAGradient) {
  adapt({"llm:all-linear", "vision:q_proj", "projector:all-linear"}, {});
  leave_out();
  TrainabilityReport proof = prove();
  prove_second_step(model, trainables, probe, proof);
  for (const ProofRow& row : proof.rows) {
    EXPECT_GT(row.grad_norm_a, 0) << row.module;
    EXPECT_GT(row.grad_norm_b, 0) << row.module;
  }
}

TEST_F(ProofTest, NothingTrainable) {
  adapt({}, {});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "nothing is trainable", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "gate_proj", prove());  // the layers there are
}

TEST_F(ProofTest, LayersBehindTheLastFeatureLayerAreLeftOut) {
  adapt({"vision:all-linear"}, {});
  ASSERT_EQ(trainables.size(), 3u * 6 * 2);
  leave_out();
  EXPECT_EQ(trainables.size(), 2u * 6 * 2);
  ASSERT_EQ(excluded.size(), 6u);
  for (const ExcludedModule& module : excluded) {
    EXPECT_TRUE(module.name.starts_with("vision_tower.vision_model.encoder.layers.2."))
        << module.name;
    EXPECT_NE(module.reason.find("vision_feature_layer -2 of 3 layers"), std::string::npos)
        << module.reason;
  }
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.key().find("layers.2.") != std::string::npos) {
      EXPECT_FALSE(parameter.value().requires_grad()) << parameter.key();
    }
  }
  const TrainabilityReport proof = prove();
  EXPECT_EQ(proof.rows.size(), 12u);
  EXPECT_EQ(proof.excluded.size(), 6u);

  build();
  adapt({}, {"vision"});
  leave_out();
  EXPECT_EQ(excluded.back().name, "vision_tower.vision_model.post_layernorm");
  EXPECT_EQ(excluded.size(), 8u + 1);  // six linears and two norms of the layer
  EXPECT_EQ(prove().excluded.size(), 9u);
}

TEST_F(ProofTest, OnlyModulesThatNeverLearn) {
  adapt({"vision:*layers.2.*"}, {});
  leave_out();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "can never learn", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "vision_feature_layer -2", prove());
}

TEST_F(ProofTest, FrozenAdapter) {
  adapt({"llm:q_proj"}, {});
  tensor("language_model.model.layers.1.self_attn.q_proj.lora_B.weight").set_requires_grad(false);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "is frozen", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "layers.1.self_attn.q_proj.lora_B.weight", prove());
}

TEST_F(ProofTest, AParameterWithoutAnOwner) {
  adapt({"llm:q_proj"}, {});
  at::Tensor norm = model->language_model->model->norm->weight;
  norm.set_requires_grad(true);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no optimizer owns", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "language_model.model.norm.weight", prove());
  norm.set_requires_grad(false);
  make_optimizer({trainables.begin(), trainables.end() - 1});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, trainables.back().name, prove());
  make_optimizer(trainables);
  optimizer->groups()[0].members.pop_back();  // in the optimizer, but in no group of it
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no optimizer owns", prove());
}

TEST_F(ProofTest, ARebuiltModel) {
  adapt({"llm:q_proj"}, {});
  const std::vector<Trainable> old = trainables;
  const std::unique_ptr<Optimizer> old_optimizer = std::move(optimizer);
  build();
  adapt({"llm:q_proj"}, {});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no longer uses",
                   check_trainable(model, old, {old_optimizer.get()}, {}, probe));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "4 of its 4 tensors",
                   check_trainable(model, trainables, {old_optimizer.get()}, {}, probe));
}

TEST_F(ProofTest, ACastModel) {
  adapt({"llm:q_proj"}, {"projector"});
  model->to(at::kBFloat16);  // in place: the optimizer's tensors are cast with it
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "not an FP32 master", prove());

  build();
  adapt({"llm:q_proj"}, {"projector"});
  at::Tensor& weight = test::as_llava(model).multi_modal_projector->linear_2->weight;
  weight.set_data(weight.detach().clone());  // separate memory again
  EXPECT_EQ(prove().rows.size(), 4u);  // the same tensor object: optimizer and model moved together
  Linear fresh(32, 32, true, at::TensorOptions().dtype(at::kFloat));
  fresh->weight.copy_(weight.detach());
  fresh->bias.zero_();
  test::as_llava(model).multi_modal_projector->replace_module("linear_2", fresh);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no longer uses", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "multi_modal_projector.linear_2.weight", prove());
}

TEST_F(ProofTest, TwoOptimizersOrGroupsOfOneTensor) {
  adapt({"llm:q_proj"}, {"projector"});
  Optimizer second({trainables.back()}, param_groups({trainables.back()}, 1e-3, -1),
                   make_adamw({}));
  const auto both = [&] {
    check_trainable(model, trainables, {optimizer.get(), &second}, {}, probe);
  };
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "two optimizer groups own", both());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "group 2/base", both());
  optimizer->groups().push_back({"again", 1e-3, {0}});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "group again", prove());
}

TEST_F(ProofTest, TwoOptimizersThatShareNothing) {
  adapt({"llm:q_proj"}, {"projector"});
  const auto middle = trainables.begin() + 4;
  make_optimizer({trainables.begin(), middle});
  const std::vector<Trainable> rest(middle, trainables.end());
  Optimizer second(rest, param_groups(rest, 1e-3, -1), make_adamw({}));
  const TrainabilityReport proof =
      check_trainable(model, trainables, {optimizer.get(), &second}, {}, probe);
  EXPECT_EQ(proof.rows.front().group, "1/base");
  EXPECT_EQ(proof.rows.back().group, "2/base");
  EXPECT_EQ(proof.rows.back().lr, 1e-3);
}

TEST_F(ProofTest, ViewsOfOneFlatBufferAreApartUnlessTheyOverlap) {
  adapt({"llm:q_proj"}, {});
  int64_t size = 0;
  for (const Trainable& trainable : trainables) size += trainable.tensor.numel();
  const at::Tensor flat = at::empty({size}, at::kFloat);
  const auto lay = [&](int64_t gap_before_last) {
    int64_t at = 0;
    for (size_t i = 0; i < trainables.size(); ++i) {
      at::Tensor tensor = trainables[i].tensor;
      const at::Tensor values = tensor.detach().clone();
      if (i + 1 == trainables.size()) at += gap_before_last;
      tensor.set_data(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at::NoGradGuard no_grad;
      tensor.copy_(values);
      at += tensor.numel();
    }
  };
  lay(0);
  EXPECT_EQ(prove().rows.size(), 2u);
  lay(-1);  // one element, four bytes
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "two optimizer groups own", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, trainables.back().name, prove());
}

TEST_F(ProofTest, OneTensorUnderTwoNamesOfTheModelHasOneOwner) {
  adapt({"llm:q_proj"}, {"projector"});
  model->register_parameter("alias", trainables.back().tensor, /*requires_grad=*/true);
  EXPECT_EQ(prove().rows.size(), 4u);
}

TEST_F(ProofTest, ATensorTheLossDoesNotDependOn) {
  adapt({"vision:q_proj"}, {});  // with the unused layer, not left out
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the loss does not depend on", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "encoder.layers.2.self_attn.q_proj.lora_A.weight", prove());
}

TEST_F(ProofTest, AnOptimizerOverAnotherTensorObjectOfTheSameMemory) {
  adapt({"llm:q_proj"}, {});
  std::vector<Trainable> copies = trainables;
  copies[0].tensor = copies[0].tensor.detach().set_requires_grad(true);
  make_optimizer(copies);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the loss does not depend on", prove());
}

TEST_F(ProofTest, WhatGivesZerosOnlyIsNamedOnWhicheverSideItLies) {
  adapt({"llm:v_proj"}, {});
  const auto weight = [&](const std::string& name) { return model->named_parameters()[name]; };
  const at::NoGradGuard no_grad;
  const std::string layer = "language_model.model.layers.1.";
  for (const auto& [name, side] :
       std::vector<std::pair<std::string, std::string>>{{layer + "input_layernorm", "before"},
                                                        {layer + "self_attn.o_proj", "after"},
                                                        {"language_model.model.norm", "after"}}) {
    const at::Tensor kept = weight(name + ".weight").clone();
    weight(name + ".weight").zero_();
    EXPECT_LFT_ERROR(ErrorKind::kUsage,
                     name + ", " + side + " it, gives zeros only: its weight is all zeros",
                     prove());
    weight(name + ".weight").copy_(kept);
  }
  EXPECT_EQ(prove().rows.size(), 2u);
}

TEST_F(ProofTest, ADeadAdapter) {
  adapt({"llm:v_proj"}, {});
  llm_layer("layers.1.self_attn.o_proj")->weight.zero_();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "gradient is exactly zero", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "layers.1.self_attn.v_proj", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "1 of 2 modules", prove());
}

TEST_F(ProofTest, ADeadModuleTrainedWhole) {
  adapt({}, {"projector"});
  at::NoGradGuard no_grad;
  test::as_llava(model).multi_modal_projector->linear_2->weight.zero_();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "trained whole cannot learn", prove());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "multi_modal_projector.linear_1", prove());
}

TEST_F(ProofTest, WhichHalfOfALoadedAdapterMustHaveAGradient) {
  adapt({"llm:q_proj"}, {});
  const std::string module = "language_model.model.layers.0.self_attn.q_proj";
  at::Tensor a = tensor(module + ".lora_A.weight"), b = tensor(module + ".lora_B.weight");
  const at::Tensor fresh_a = a.detach().clone();
  at::NoGradGuard no_grad;
  b.fill_(0.02);
  ProofRow row = prove().rows[0];
  EXPECT_GT(row.grad_norm_a, 0);
  EXPECT_GT(row.grad_norm_b, 0);
  a.zero_();
  row = prove().rows[0];
  EXPECT_GT(row.grad_norm_a, 0);
  EXPECT_EQ(row.grad_norm_b, 0);
  b.zero_();
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "an adapter cannot learn", prove());
  a.copy_(fresh_a);
  b.fill_(0.02);
  const auto hook =
      a.register_hook([](const at::Tensor& gradient) { return at::zeros_like(gradient); });
  EXPECT_LFT_ERROR(ErrorKind::kUsage, module, prove());
  a.remove_hook(hook);
}

TEST_F(ProofTest, ANonFiniteProbeIsNoDeadAdapter) {
  adapt({"llm:v_proj"}, {});
  llm_layer("layers.1.self_attn.o_proj")->weight.zero_();  // dead, if the probe were finite
  llm_layer("layers.0.mlp.up_proj")->weight.fill_(std::numeric_limits<float>::infinity());
  const TrainabilityReport proof = prove();
  EXPECT_FALSE(proof.probe_finite);
  EXPECT_TRUE(proof.rows[1].reachable);
  bool said = false;
  for (const std::string& line : trainability_table(proof))
    said |= line.find("not finite in fp32") != std::string::npos;
  EXPECT_TRUE(said);
  EXPECT_FALSE(trainability_json(proof)["probe"]["finite"].get<bool>());

  build();
  adapt({"vision:q_proj"}, {});
  llm_layer("layers.0.mlp.up_proj")->weight.fill_(std::numeric_limits<float>::infinity());
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the loss does not depend on", prove());
}

TEST_F(ProofTest, LowPrecisionGradientsMeanTheSame) {
  adapt({"llm:all-linear"}, {"projector"});
  const TrainabilityReport wide = prove();
  for (const auto& [dtype, scale] :
       {std::pair(at::kBFloat16, 1.0), std::pair(at::kHalf, 65536.0), std::pair(at::kHalf, 1.0)}) {
    probe.compute = dtype;
    probe.loss_scale = scale;
    const TrainabilityReport proof = prove();
    EXPECT_TRUE(proof.probe_finite);
    for (size_t i = 0; i < proof.rows.size(); ++i) {
      // Forward and backward pass in sequence round about 40 times, by at most 2^-9 in
      // BF16: 8% if all had one sign. Twice that.
      EXPECT_NEAR(proof.rows[i].grad_norm_b, wide.rows[i].grad_norm_b,
                  2 * 40 * 0x1p-9 * wide.rows[i].grad_norm_b)
          << proof.rows[i].module;
    }
  }
}

TEST_F(ProofTest, TinyGradientsAreNotDead) {
  adapt({"llm:v_proj"}, {});
  at::Tensor weight = llm_layer("layers.1.self_attn.o_proj")->weight;
  weight.mul_(1e-9);  // 0 in FP16
  probe.compute = at::kHalf;
  TrainabilityReport proof = prove();
  EXPECT_EQ(proof.underflowed, 1);
  EXPECT_GT(proof.rows[1].grad_norm_b, 0);
  weight.mul_(1e-25);  // as small as a BF16 gradient gets, with FP32's range
  probe.compute = at::kBFloat16;
  proof = prove();
  EXPECT_EQ(proof.underflowed, 0);
  EXPECT_GT(proof.rows[1].grad_norm_b, 0);
  EXPECT_LT(proof.rows[1].grad_norm_b, 1e-30);
}

TEST_F(ProofTest, ALossScaleThatOverflowsGoesDown) {
  adapt({"llm:all-linear"}, {});
  probe.compute = at::kHalf;
  probe.loss_scale = 1024;
  const TrainabilityReport calm = prove();
  ASSERT_EQ(calm.loss_scale, 1024);
  probe.loss_scale = 0x1p40;
  const TrainabilityReport proof = prove();
  EXPECT_TRUE(proof.probe_finite);
  EXPECT_LT(proof.loss_scale, 0x1p40);
  EXPECT_EQ(std::fmod(std::log2(proof.loss_scale), 4), 0);
  for (size_t i = 0; i < proof.rows.size(); ++i) {
    EXPECT_NEAR(proof.rows[i].grad_norm_b, calm.rows[i].grad_norm_b,
                0.02 * calm.rows[i].grad_norm_b)
        << proof.rows[i].module;
  }
}

TEST_F(ProofTest, TheTableHasARowForEqualLayers) {
  adapt({"llm:all-linear", "vision:q_proj"}, {"projector"});
  leave_out();
  const TrainabilityReport proof = prove();
  const std::vector<std::string> lines = trainability_table(proof);
  ASSERT_EQ(lines.size(), 1 + 7 + 1 + 2 + 3 + 1 + 1u)
      << "head, llm, vision, projector, what is common, left out, counts";
  for (size_t i = 0; i < 1 + 7 + 1 + 2; ++i)  // sentences are folded on a terminal
    EXPECT_LE(lines[i].size(), 80u) << lines[i];
  const auto row = [&](const std::string& name) {
    for (const std::string& line : lines) {
      if (line.starts_with(name + " ")) return line;
    }
    return std::string();
  };
  EXPECT_NE(row("llm layers.0-1.self_attn.q_proj").find("        2         512  "),
            std::string::npos)
      << lines[1];
  double least = INFINITY;
  for (const ProofRow& each : proof.rows)
    if (each.module.ends_with("self_attn.q_proj") && each.scope == "llm")
      least = std::min(least, each.grad_norm_b);
  EXPECT_NE(row("llm layers.0-1.self_attn.q_proj").find(" " + format_number(least)),
            std::string::npos)
      << lines[1];
  EXPECT_NE(row("vision layers.0-1.self_attn.q_proj"), "");
  EXPECT_NE(row("projector linear_1"), "");
  EXPECT_NE(row("left out").find("vision_feature_layer -2"), std::string::npos);
  EXPECT_EQ(lines.back(),
            "trains " + trained_share(proof.trainable, proof.total) + " in 18 modules");
  EXPECT_EQ(trained_share(4'194'304, 7'063'430'000), "4.19 M of 7063.43 M parameters (0.06%)");

  const Json json = trainability_json(proof);
  ASSERT_EQ(json["modules"].size(), 18u);
  EXPECT_EQ(json["modules"][0]["module"], proof.rows[0].module);
  EXPECT_EQ(json["modules"][0].contains("grad_norm_a"), proof.rows[0].adapter);
  EXPECT_EQ(json["excluded"][0]["module"],
            "vision_tower.vision_model.encoder.layers.2.self_attn.q_proj");
  EXPECT_EQ(json["trainable_parameters"], proof.trainable);
  EXPECT_EQ(json["probe"]["samples"][0], "s1");
}

}  // namespace
}  // namespace lft::proof_test
