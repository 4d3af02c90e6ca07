// Every misuse of autograd that an author of an adapter, a hook or an op can plant: the error names
// the action, the module, the phase, the op and the remedy. And lft's own steps cannot cause
// them.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "models/loss_sum.h"
#include "src/data/batch.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/proof/proof_probe.h"
#include "support/expect_error.h"
#include "train/offender.h"

namespace lft::autograd_errors_test {
using namespace lft::data;
using namespace lft::lora;
using namespace lft::train;
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using test::kLayers;
using test::Offender;
using AutogradErrors = test::OffenderTest;

TEST_F(AutogradErrors, AnHonestAdapterOfOnesOwnTrains) {
  plant(kLayers + "0.self_attn.q_proj",
        [](Offender&, const at::Tensor&, const at::Tensor& y) { return y; });
  EXPECT_EQ(take(2).result, StepResult::kTaken);
}

TEST_F(AutogradErrors, TrainableChangedInPlace) {
  const std::string name = kLayers + "0.self_attn.q_proj";
  plant(name, [](Offender& self, const at::Tensor&, const at::Tensor& y) {
    self.a.mul_(0.5);
    return y;
  });
  const ErrorInfo info = fault();
  EXPECT_EQ(info.what, "a trainable tensor was changed in place while its gradient is recorded");
  EXPECT_EQ(info.where,
            "module " + name + ", forward pass, aten::mul_ on " + name + ".adapter.lora_A");
  EXPECT_PIECE(info.found,
               "a leaf Variable that requires grad is being used in an in-place operation");
  EXPECT_PIECE(info.next, "at::NoGradGuard");
}

TEST_F(AutogradErrors, ViewOfATrainableChangedInPlace) {
  const std::string name = kLayers + "1.mlp.up_proj";
  plant(name, [](Offender& self, const at::Tensor&, const at::Tensor& y) {
    self.b.narrow(0, 0, 1).zero_();
    return y;
  });
  const ErrorInfo info = fault();
  EXPECT_PIECE(info.what, "a trainable tensor was changed in place");
  EXPECT_PIECE(info.where,
               "module " + name + ", forward pass, aten::zero_ on " + name + ".adapter.lora_B");
}

TEST_F(AutogradErrors, SavedTensorChangedWithinItsModule) {
  const std::string name = kLayers + "1.self_attn.v_proj";
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor gate = at::exp(y);  // saves its result
    gate.mul_(0.5);
    return y * gate;
  });
  const ErrorInfo info = fault();
  EXPECT_EQ(info.what,
            "a tensor was changed in place after an op had saved it for the backward pass");
  EXPECT_EQ(info.where, "module " + name +
                            ", backward pass, ExpBackward0, changed in place by aten::mul_ in " +
                            name);
  EXPECT_PIECE(info.found, "is at version 1; expected version 0 instead.");
  EXPECT_EQ(info.found.find("Hint"), std::string::npos);  // torch's hint is about Python
}

/// lft's own linear layers have saved, in the first one's node, the input that k_proj's adapter
/// then changes.
TEST_F(AutogradErrors, SavedTensorChangedByTheNextModule) {
  for (const bool graph : {true, false}) {
    SCOPED_TRACE(graph);
    build({"llm:all-linear"});
    const auto body = [graph](Offender&, const at::Tensor& x, const at::Tensor& y) {
      const at::AutoGradMode mode(graph);
      at::Tensor(x).mul_(1.5);
      return y;
    };
    plant(kLayers + "1.self_attn.k_proj", body,
          /*trains=*/false);  // so that it saves nothing itself
    const ErrorInfo info = fault();
    EXPECT_EQ(info.where, "module " + kLayers +
                              "1.self_attn.q_proj, backward pass, SharedInputFunction, changed in "
                              "place by aten::mul_ in " +
                              kLayers + "1.self_attn.k_proj");
  }
}

/// A hook that modifies its read-only input.
class MeddlingHook : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module&,
              const std::vector<at::Tensor>& inputs) override {
    if (path.ends_with("1.self_attn.k_proj"))
      inputs[0].detach().clamp_(-1, 1);  // q_proj has saved it
  }
};

TEST_F(AutogradErrors, SavedTensorChangedByAHook) {
  MeddlingHook hook;
  const ObserveCalls observe(hook);
  const ErrorInfo info = fault();
  EXPECT_EQ(info.where, "module " + kLayers +
                            "1.self_attn.q_proj, backward pass, SharedInputFunction, changed in "
                            "place by aten::clamp_ in " +
                            kLayers + "1.self_attn.k_proj");
}

TEST_F(AutogradErrors, SavedTensorChangedInARecomputedBlock) {
  const std::string name = kLayers + "0.mlp.gate_proj";
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor gate = at::sigmoid(y);
    gate.add_(1);
    return gate;
  });
  state.recompute = 1;
  const ErrorInfo info = fault();
  EXPECT_EQ(info.where,
            "module " + name +
                ", backward pass, SigmoidBackward0, changed in place by aten::add_ in " + name);
}

/// The classic leak: part of a graph is kept from one pass to the next.
TEST_F(AutogradErrors, SecondBackwardThroughAFreedGraph) {
  const std::string name = kLayers + "0.self_attn.q_proj";
  at::Tensor kept;
  plant(name, [&](Offender&, const at::Tensor&, const at::Tensor& y) {
    const at::Tensor before = kept;
    kept = (y * y).mean();
    return before.defined() ? y + before : y;
  });
  const ErrorInfo info = fault(/*micro_batches=*/2);
  EXPECT_EQ(info.what, "a graph was to be differentiated a second time, after it was freed");
  EXPECT_PIECE(info.where, "module " + name + ", backward pass, ");
  EXPECT_PIECE(info.next, "detach()");
}

TEST_F(AutogradErrors, LossWithoutAGraph) {
  const std::string name = kLayers + "1.self_attn.q_proj";
  const std::vector<std::pair<std::string, Offender::Body>> bodies = {
      {"detach", [](Offender&, const at::Tensor&, const at::Tensor& y) { return y.detach(); }},
      {"no_grad",
       [](Offender& self, const at::Tensor& x, const at::Tensor& y) {
         const at::NoGradGuard no_grad;
         return at::matmul(at::matmul(x, self.a.t()), self.b.t());
       }},
  };
  for (const auto& [what, body] : bodies) {
    SCOPED_TRACE(what);
    build({"llm:layers.1.self_attn.q_proj"});
    plant(name, body);
    const ErrorInfo info = fault();
    EXPECT_EQ(info.what, "the loss is detached from the model");
    EXPECT_EQ(info.where, "module " + name);
    EXPECT_PIECE(info.found, "goes into " + name + " and none comes out");
  }
  build({"llm:all-linear"});
  const at::NoGradGuard no_grad;
  EXPECT_PIECE(fault().found, "no graph was recorded (at::NoGradGuard) in ");
}

TEST_F(AutogradErrors, TensorOfInferenceModeSaved) {
  const std::string name = kLayers + "0.mlp.down_proj";
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor factor;
    {
      const c10::InferenceMode inference;
      factor = at::full({y.size(-1)}, 0.5);
    }
    return y * factor;
  });
  const ErrorInfo info = fault();
  EXPECT_EQ(info.what, "a tensor made in inference mode was used in training");
  EXPECT_EQ(info.where, "module " + name + ", forward pass, aten::mul");
}

TEST_F(AutogradErrors, ViewChangedInPlace) {
  const std::string name = kLayers + "0.mlp.up_proj";
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor z = y * 1;
    z.unbind(0)[0].mul_(2);
    return z;
  });
  ErrorInfo info = fault();
  EXPECT_EQ(info.what, "a view was changed in place where autograd cannot follow");
  EXPECT_EQ(info.where, "module " + name + ", forward pass, aten::mul_");
  EXPECT_PIECE(info.next, "clone()");

  build({"llm:all-linear"});
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor z = y * 1, view;
    {
      const at::NoGradGuard no_grad;
      view = z.narrow(0, 0, 1);
    }
    view.mul_(2);
    return z;
  });
  info = fault();
  EXPECT_EQ(info.what, "a view made without a graph was changed in place where one is recorded");
  EXPECT_EQ(info.where, "module " + name + ", forward pass, aten::mul_");
}

struct WrongShape : torch::autograd::Function<WrongShape> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0].narrow(-1, 0, 1)};
  }
};
struct WrongCount : torch::autograd::Function<WrongCount> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], gradients[0]};
  }
};
struct MarksDirty : torch::autograd::Function<MarksDirty> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->mark_dirty({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0]};
  }
};

TEST_F(AutogradErrors, OpsWithABackwardFunctionThatDoesNotFit) {
  const std::string name = kLayers + "1.mlp.gate_proj";
  plant(name,
        [](Offender&, const at::Tensor&, const at::Tensor& y) { return WrongShape::apply(y); });
  ErrorInfo info = fault();
  EXPECT_EQ(info.what,
            "the backward function of an op returned a gradient that does not fit its input");
  EXPECT_EQ(info.where, "module " + name + ", backward pass, WrongShape");

  build({"llm:all-linear"});
  plant(name, [](Offender&, const at::Tensor&, const at::Tensor& y) {
    return at::where(at::ones_like(y, at::kBool), WrongCount::apply(y), y);
  });
  info = fault();
  EXPECT_EQ(info.what, "the backward function of an op returned too few or too many gradients");
  EXPECT_EQ(info.where, "module " + name + ", backward pass, WrongCount");

  build({"llm:all-linear"});
  plant(name,
        [](Offender&, const at::Tensor&, const at::Tensor& y) { return MarksDirty::apply(y); });
  info = fault();
  EXPECT_EQ(info.what, "an op marked an input as changed in place and did not return it");
  EXPECT_PIECE(info.where, "module " + name + ", forward pass");
}

TEST_F(AutogradErrors, AnOpWithoutADerivative) {
  const std::string name = kLayers + "0.mlp.gate_proj";
  plant(name,
        [](Offender&, const at::Tensor&, const at::Tensor& y) { return at::nextafter(y, y * 2); });
  const ErrorInfo info = fault();
  EXPECT_EQ(info.what, "an op has no derivative, or does not exist for this dtype or device");
  EXPECT_PIECE(info.where, "module " + name + ", backward pass, ");
  EXPECT_PIECE(info.found, "nextafter");
}

TEST_F(AutogradErrors, OtherMisuse) {
  struct Case {
    std::string what;
    Offender::Body body;
  };
  const std::vector<Case> cases = {
      {"requires_grad was set on a tensor that is the result of an op",
       [](Offender&, const at::Tensor&, const at::Tensor& y) {
         return at::Tensor(y).requires_grad_(false);
       }},
      {"an integer tensor was to be trained",
       [](Offender&, const at::Tensor&, const at::Tensor& y) {
         return y + at::zeros({1}, at::kLong).requires_grad_();
       }},
      {"a tensor without a graph was to be differentiated",
       [](Offender&, const at::Tensor&, const at::Tensor& y) {
         y.detach().sum().backward();
         return y;
       }},
      {"a gradient was asked for that the graph does not lead to",
       [](Offender& self, const at::Tensor&, const at::Tensor& y) {
         torch::autograd::grad({y.sum()}, {self.b.detach().requires_grad_()});
         return y;
       }},
      {"LibTorch refused an operation",
       [](Offender&, const at::Tensor& x, const at::Tensor& y) { return at::mm(x, y); }},
      {"the backward pass was to start at a tensor that is no scalar",
       [](Offender& self, const at::Tensor&, const at::Tensor& y) {
         self.a.mul(2).backward();
         return y;
       }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    build({"llm:all-linear"});
    plant(kLayers + "1.self_attn.o_proj", each.body);
    const ErrorInfo info = fault();
    EXPECT_EQ(info.what, each.what);
    EXPECT_PIECE(info.where, "module " + kLayers + "1.self_attn.o_proj, forward pass");
  }
}

TEST_F(AutogradErrors, OneThatDoesNotComeAgainIsSaidToBeSo) {
  int calls = 0;
  plant(kLayers + "0.mlp.up_proj", [&](Offender& self, const at::Tensor&, const at::Tensor& y) {
    if (++calls == 1) self.a.mul_(0.5);
    return y;
  });
  const ErrorInfo info = fault();
  EXPECT_EQ(info.where, "module " + kLayers +
                            "0.mlp.up_proj, it did not fail again when the pass was run once more: "
                            "it depends on more "
                            "than this batch");
}

TEST_F(AutogradErrors, OutOfMemoryAndOwnErrorsGoOnAsTheyAre) {
  int calls = 0;
  plant(kLayers + "0.mlp.up_proj", [&](Offender&, const at::Tensor&, const at::Tensor& y) {
    ++calls;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB");
    return y;
  });
  EXPECT_THROW(take(), c10::OutOfMemoryError);
  plant(kLayers + "0.mlp.up_proj", [&](Offender&, const at::Tensor&, const at::Tensor& y) {
    ++calls;
    throw Error(ErrorKind::kNumeric, "mine");
    return y;
  });
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "mine", take());
  EXPECT_EQ(calls, 2);  // the pass is not repeated
}

TEST_F(AutogradErrors, NothingMovesAndTheNextStepIsHealthy) {
  bool wrong = true;
  plant(kLayers + "0.mlp.up_proj", [&](Offender&, const at::Tensor&, const at::Tensor& y) {
    at::Tensor gate = at::exp(y);
    if (wrong) gate.mul_(2);
    return y + gate;
  });
  std::vector<at::Tensor> before;
  for (const Slot& slot : optimizer->slots()) before.push_back(slot.param.tensor.detach().clone());
  fault(2);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i], optimizer->slots()[i].param.tensor)) << i;
  EXPECT_EQ(state.step, 0);
  wrong = false;
  const StepOutcome after = take(2);
  EXPECT_EQ(after.result, StepResult::kTaken);
  const std::vector<double> norms = after.stats.norms;
  build({"llm:all-linear"});
  plant(kLayers + "0.mlp.up_proj",
        [](Offender&, const at::Tensor&, const at::Tensor& y) { return y + at::exp(y); });
  EXPECT_EQ(take(2).stats.norms, norms);  // no gradient of the failed pass remains
}

TEST_F(AutogradErrors, TheProofBeforeStepOneExplainsThem) {
  const std::string name = kLayers + "0.self_attn.q_proj";
  plant(name, [](Offender& self, const at::Tensor&, const at::Tensor& y) {
    self.a.mul_(0.5);
    return y;
  });
  std::vector<at::Tensor> tensors;
  for (const Trainable& trainable : trainables) tensors.push_back(trainable.tensor);
  const Probe probe{.samples = {sample(1)}, .encode = layout->encode};
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "module " + name + ", forward pass, aten::mul_ on",
                   probe_gradients(model, tensors, probe));
}

/// Without a second pass only the error's own information is available.
TEST_F(AutogradErrors, ExplainedFromTheErrorAlone) {
  plant(kLayers + "0.mlp.up_proj",
        [](Offender&, const at::Tensor& x, const at::Tensor& y) { return at::mm(x, y); });
  try {
    test::loss_sum(model, collate({sample(1)}, layout->encode, at::kCPU));
    FAIL();
  } catch (const c10::Error& error) {
    const ErrorInfo info = explain_torch_error(error).info();
    EXPECT_EQ(info.where, "module " + kLayers + "0.mlp.up_proj");
    EXPECT_EQ(info.found.find('\n'), std::string::npos);
  }
}

/// A step of lft's own: every graph is freed when it ends, so that none can be differentiated
/// a second time; and no trainable was written to between the first forward and the last backward
/// pass, by version and by value.
class Graphs : public CallObserver {
 public:
  void after(const std::string&, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    for (const at::Tensor& output : outputs) {
      if (output.grad_fn() != nullptr) nodes.push_back(output.grad_fn());
    }
  }
  std::vector<std::weak_ptr<torch::autograd::Node>> nodes;
};

TEST_F(AutogradErrors, AStepKeepsNoGraphAndWritesToNoTrainableWhileOneLives) {
  for (const int64_t recompute : {0, 1}) {
    state.recompute = recompute;
    std::vector<at::Tensor> values;
    std::vector<uint32_t> versions;
    for (const Trainable& trainable : trainables) {
      values.push_back(trainable.tensor.detach().clone());
      versions.push_back(trainable.tensor._version());
    }
    bool looked = false;
    options.gradients_ready = [&](int64_t, Optimizer&) {
      for (size_t i = 0; i < trainables.size(); ++i) {
        EXPECT_EQ(trainables[i].tensor._version(), versions[i]) << trainables[i].name;
        EXPECT_TRUE(at::equal(trainables[i].tensor, values[i])) << trainables[i].name;
      }
      looked = true;
    };
    Graphs graphs;
    {
      const ObserveCalls observe(graphs);
      EXPECT_EQ(take(3).result, StepResult::kTaken);
    }
    EXPECT_TRUE(looked);
    EXPECT_GT(graphs.nodes.size(), 20u);
    for (const auto& node : graphs.nodes) EXPECT_TRUE(node.expired());
    EXPECT_FALSE(at::equal(trainables[0].tensor, values[0]));  // the update came after all of them
  }
}

}  // namespace
}  // namespace lft::autograd_errors_test
