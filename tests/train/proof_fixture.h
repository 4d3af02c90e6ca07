// A tiny random LLaVA with adapters, an optimizer and one sample with an image, for tests of the
// checks before step 1.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "models/lora/inject_select.h"
#include "src/data/loader.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/optim/adamw.h"
#include "src/train/proof/proof.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"
#include "train/image_sample.h"
#include "train/names.h"

namespace lft::test {

class ProofFixture : public ::testing::Test {
 protected:
  ProofFixture() {
    build();
    probe.samples = {sample(1, 12, 5)};
    probe.encode.config = model->config;
    probe.encode.images =
        test::squares(probe.encode.config, "pad", {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f});
  }

  void build() { model = load_model(ModelDir::open(dir_), at::kFloat, at::kCPU); }

  void adapt(const std::vector<std::string>& targets, const std::vector<std::string>& full,
             double projector_lr = -1, double b_ratio = 1) {
    if (!targets.empty())
      inject_lora(select_sites(linear_sites(*model), targets),
                  {.rank = 4, .alpha = 8, .dropout = 0.5}, 7);
    trainables = make_trainable(*model, full);
    excluded.clear();
    make_optimizer(trainables, projector_lr, b_ratio);
  }
  void make_optimizer(const std::vector<Trainable>& owned, double projector_lr = -1,
                      double b_ratio = 1) {
    optimizer = std::make_unique<Optimizer>(owned, param_groups(owned, 1e-2, projector_lr, b_ratio),
                                            make_adamw({}));
  }
  void leave_out() {
    Learnable learnable = never_learning(model->config, trainables);
    trainables = learnable.kept;
    excluded = learnable.excluded;
    make_optimizer(trainables);
  }

  TrainabilityReport prove() {
    return check_trainable(model, trainables, {optimizer.get()}, excluded, probe);
  }

  at::Tensor tensor(const std::string& name) const {
    for (const Trainable& trainable : trainables) {
      if (trainable.name == name) return trainable.tensor;
    }
    throw std::runtime_error("no trainable " + name);
  }
  Linear llm_layer(const std::string& suffix) {
    return select_sites(linear_sites(*model), {"llm:" + suffix}).at(0).layer;
  }

  static Sample sample(uint64_t seed, int64_t length, int64_t supervised) {
    return image_sample(seed, length, supervised);
  }

  std::vector<at::Tensor> everything() const {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& parameter : model->parameters())
      tensors.push_back(parameter.detach().clone());
    for (const Slot& slot : optimizer->slots()) {
      tensors.push_back(slot.moment("exp_avg").clone());
      tensors.push_back(slot.moment("exp_avg_sq").clone());
    }
    return tensors;
  }
  static void expect_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(at::equal(a[i].view(at::kByte), b[i].view(at::kByte))) << i;
  }

  Model model{nullptr};
  std::vector<Trainable> trainables;
  std::vector<ExcludedModule> excluded;
  std::unique_ptr<Optimizer> optimizer;
  Probe probe;

 private:
  TempDir scratch_;
  const std::string dir_ = write_tiny_llava(scratch_.file("model"));
};

}  // namespace lft::test
