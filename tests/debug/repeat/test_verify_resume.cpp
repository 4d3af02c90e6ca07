// The certificate: identical for a healthy recipe, with hashes of the files that a run writes;
// planted differences are named; the output directory is unchanged.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "debug/names.h"
#include "src/base/hash.h"
#include "src/debug/repeat/verify_resume.h"
#include "src/train/run/trainer.h"
#include "src/train/step/step.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::test::verify_resume_test {
namespace {

class VerifyResume : public ::testing::Test {
 protected:
  /// Dropout, two micro-batches per step, epochs of 2 steps (8 + 2 rows): the stop after step 3 is
  /// within one.
  Recipe recipe() const {
    Recipe recipe = run_.recipe("out");
    recipe.data.eval.clear();
    recipe.lora.dropout = 0.25;
    recipe.train.grad_accum = 2;
    recipe.train.max_steps = 100;
    return recipe;
  }

  /// All parts in this process; `plant` changes the options of the resumed one.
  int verify(const Recipe& recipe, int64_t steps,
             const std::function<void(TrainOptions&)>& plant = {}) {
    return verify_resume(recipe, {.steps = steps, .run_part = [&](const RunPart& part) {
                                    TrainOptions options{.resume = part.resume,
                                                         .stop_after_step = part.stop_after_step};
                                    if (plant && part.resume) plant(options);
                                    PartEnd end;
                                    options.part_done = [&](int64_t step, const StepSamples& next) {
                                      end.step = step;
                                      end.next_ids = sample_ids(next);
                                    };
                                    end.exit_code = train::train(part.recipe, options);
                                    return end;
                                  }});
  }
  std::string failure(const Recipe& recipe, int64_t steps,
                      const std::function<void(TrainOptions&)>& plant) {
    return test::thrown_text(
        ErrorKind::kCheckpoint, [&] { verify(recipe, steps, plant); }, __FILE__, __LINE__);
  }
  Json certificate() const {
    return Json::parse(test::slurp(run_.dir().file("out.resume-certificate.json")));
  }
  static const Json* item(const Json& certificate, const std::string& what) {
    for (const Json& each : certificate["compared"]) {
      if (each["what"] == what) return &each;
    }
    return nullptr;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(run_.dir().path()))
      out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }

  const test::TinyRun run_{10};
};

TEST_F(VerifyResume, AHealthyRecipeIsIdenticalAndTheHashesAreThoseOfARun) {
  ASSERT_EQ(verify(recipe(), 3), 0);
  const Json issued = certificate();
  EXPECT_EQ(issued["verdict"], "identical");
  EXPECT_EQ(issued["saved_behind_step"], 3);
  EXPECT_EQ(issued["compared_behind_step"], 6);
  for (const char* what :
       {"step lines", "trainables.safetensors", "optimizer.safetensors", "state.json",
        "adapter/adapter_model.safetensors", "adapter/adapter_config.json", "next sample ids"}) {
    const Json* compared = item(issued, what);
    ASSERT_NE(compared, nullptr) << what;
    EXPECT_TRUE(compared->at("equal")) << what;
    EXPECT_EQ(compared->at("sha256"), compared->at("sha256_resumed")) << what;
  }
  // The same recipe trained elsewhere, up to the same step, produces the files listed in the
  // certificate.
  Recipe elsewhere = recipe();
  elsewhere.output_dir = run_.dir().file("elsewhere");
  std::vector<std::string> next;
  ASSERT_EQ(
      train::train(
          elsewhere,
          {.stop_after_step = 6,
           .part_done = [&](int64_t, const StepSamples& samples) { next = sample_ids(samples); }}),
      0);
  EXPECT_EQ(item(issued, "adapter/adapter_model.safetensors")->at("sha256"),
            sha256_file(elsewhere.output_dir + "/adapter/adapter_model.safetensors"));
  EXPECT_EQ(item(issued, "optimizer.safetensors")->at("sha256"),
            sha256_file(elsewhere.output_dir + "/checkpoints/step-6/optimizer.safetensors"));
  EXPECT_EQ(issued["run_hash"], test::step_lines(elsewhere.output_dir).back()["run_hash"]);
  EXPECT_EQ(issued["next_sample_ids"], Json(next));
  EXPECT_EQ(issued["identity"]["world_size"], 1);
  EXPECT_EQ(issued["environment"]["deterministic"], true);
}

TEST_F(VerifyResume, MomentsIn8BitsAreIdenticalAndScalesThatAreNotRestoredAreFound) {
  Recipe small = recipe();
  small.optim.name = "adamw8bit";
  small.full = {"llm"};  // embeddings of 4096 and more elements
  small.lora.targets = {"projector:all-linear"};
  ASSERT_EQ(verify(small, 2), 0);
  EXPECT_TRUE(item(certificate(), "optimizer.safetensors")->at("equal"));
  const std::string said = failure(small, 2, [](TrainOptions& options) {
    options.gradients_ready = [](int64_t, Optimizer& optimizer) {
      for (Slot& slot : optimizer.slots()) {
        if (slot.moment("exp_avg_absmax").defined()) slot.moment("exp_avg_absmax").zero_();
      }
    };
  });
  EXPECT_NE(said.find("not the run that was never stopped"), std::string::npos) << said;
}

TEST_F(VerifyResume, TheOutputDirectoryIsNotTouchedAndNothingIsLeftBehind) {
  run_.dir().write("out/metrics.jsonl", "of another run\n");
  const std::vector<std::string> before = names();
  const std::string out = run_.dir().file("certificates") + "/one.json";
  fs::create_directory(run_.dir().file("certificates"));
  Recipe slashed = recipe();
  slashed.output_dir += "/";
  const auto in_process = [](const RunPart& part) { return train_part(part); };
  ASSERT_EQ(verify_resume(slashed, {.steps = 1, .out = out, .run_part = in_process}), 0);
  EXPECT_EQ(Json::parse(test::slurp(out))["verdict"], "identical");
  fs::remove_all(run_.dir().file("certificates"));
  EXPECT_EQ(names(), before);
  EXPECT_EQ(test::slurp(run_.dir().file("out/metrics.jsonl")), "of another run\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(run_.dir().file("out")), fs::directory_iterator()),
            1);
}

TEST_F(VerifyResume, AShortRunIsStoppedInItsMiddle) {
  Recipe three = recipe();
  three.train.max_steps = 3;
  ASSERT_EQ(verify(three, 4), 0);
  EXPECT_EQ(certificate()["saved_behind_step"], 1);
  EXPECT_EQ(certificate()["compared_behind_step"], 3);
  three.train.max_steps = 1;
  three.optim.warmup_ratio = 0;  // with a single step everything would be warm-up
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "one step cannot be resumed", verify(three, 4));
}

TEST_F(VerifyResume, ASkippedStepInEachHalfIsNoDifference) {
  Recipe fp16 = recipe();
  fp16.precision.compute = "fp16";
  fp16.precision.loss_scale.init = 4294967296.0;  // overflows in each of the first steps and halves
  ASSERT_EQ(verify(fp16, 2), 0);
  EXPECT_EQ(certificate()["verdict"], "identical");
}

TEST_F(VerifyResume, MomentsThatWereLostAreNamed) {
  const std::string text = failure(recipe(), 1, [](TrainOptions& options) {
    options.gradients_ready = [](int64_t step, Optimizer& optimizer) {
      for (Slot& slot : optimizer.slots()) slot.moment("exp_avg").zero_();
    };
  });
  // One step after the restart no loss shows it yet, but the weights do.
  EXPECT_NE(text.find("trainables.safetensors"), std::string::npos) << text;
  EXPECT_NE(text.find("values differ, by up to"), std::string::npos) << text;
  const Json issued = certificate();
  EXPECT_EQ(issued["verdict"], "different");
  EXPECT_TRUE(item(issued, "step lines")->at("equal"));
  EXPECT_FALSE(item(issued, "optimizer.safetensors")->at("equal"));
  EXPECT_FALSE(item(issued, "adapter/adapter_model.safetensors")->at("equal"));
  EXPECT_TRUE(item(issued, "next sample ids")->at("equal"));
}

TEST_F(VerifyResume, AStepCountThatWasLostIsNamed) {
  const std::string text = failure(recipe(), 2, [](TrainOptions& options) {
    options.gradients_ready = [](int64_t step, Optimizer& optimizer) {
      if (step == 3) optimizer.slots().front().steps = 0;
    };
  });
  EXPECT_NE(text.find("step lines"), std::string::npos) << text;
  EXPECT_NE(text.find("step 4: the numbers part: the same samples, another loss"),
            std::string::npos)
      << text;
  EXPECT_NE(
      item(certificate(), "state.json")->at("difference").get<std::string>().find("adam_steps"),
      std::string::npos);
}

TEST_F(VerifyResume, AGradientOffByItsLastBitIsNamed) {
  const std::string text = failure(recipe(), 1, [](TrainOptions& options) {
    options.gradients_ready = [](int64_t, Optimizer& optimizer) {
      at::Tensor gradient = optimizer.slots().back().param.tensor.mutable_grad();
      float* first = gradient.data_ptr<float>();
      *first = std::nextafter(*first, std::numeric_limits<float>::infinity());
    };
  });
  EXPECT_NE(text.find("step 2: the numbers part: the same loss, another gradient norm"),
            std::string::npos)
      << text;
  EXPECT_FALSE(item(certificate(), "step lines")->at("equal"));
}

TEST_F(VerifyResume, OtherSamplesToComeAreNamed) {
  const auto run_part = [](const RunPart& part) {
    PartEnd end = train_part(part);
    if (part.resume) std::swap(end.next_ids[0], end.next_ids[1]);
    return end;
  };
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "next sample ids",
                   verify_resume(recipe(), {.steps = 1, .run_part = run_part}));
}

TEST_F(VerifyResume, ASecondProcessThatStartedOverIsNoResume) {
  const auto run_part = [](const RunPart& part) {
    if (part.resume)
      fs::remove_all(part.recipe.output_dir +
                     "/checkpoints");  // the run starts over and repeats every bit
    return train_part(part);
  };
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "did not continue after step 1",
                   verify_resume(recipe(), {.steps = 1, .run_part = run_part}));
}

TEST_F(VerifyResume, AFailureOrAStopOfAPartEndsIt) {
  Recipe bad = recipe();
  bad.data.train = run_.dir().file("nothing.json");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "nothing.json", verify(bad, 1));
  const auto stopped = [](const RunPart& part) {
    return PartEnd{.exit_code = part.resume ? 75 : 0, .step = part.stop_after_step, .next_ids = {}};
  };
  EXPECT_EQ(verify_resume(recipe(), {.steps = 1, .run_part = stopped}), 75);
  EXPECT_FALSE(fs::exists(run_.dir().file("out.resume-certificate.json")));
}

TEST_F(VerifyResume, ThePartsFileReadsBack) {
  const PartEnd end =
      parse_part(part_json({.exit_code = 0, .step = 7, .next_ids = {"a", "b"}}), "f");
  EXPECT_EQ(end.step, 7);
  EXPECT_EQ(end.next_ids, (std::vector<std::string>{"a", "b"}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "step", parse_part(Json{{"next_ids", Json::array()}}, "f"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "next_ids",
                   parse_part(Json{{"step", 1}, {"next_ids", {1}}}, "f"));
}

}  // namespace
}  // namespace lft::test::verify_resume_test
