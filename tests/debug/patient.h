// A run prepared up to its first step, in memory, for planting and finding faults.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "debug/names.h"
#include "src/debug/nan/nan.h"
#include "src/debug/nan/nan_run.h"
#include "src/debug/nan/nan_text.h"
#include "src/train/run/run.h"
#include "support/llava.h"
#include "train/tiny_run.h"

namespace lft::test {

struct Patient {
  explicit Patient(const std::string& compute, const std::function<void(Recipe&)>& change = {}) {
    Recipe recipe = run.recipe("out");
    recipe.precision.compute = compute;
    recipe.model.base_dtype = "fp32";
    recipe.lora.dropout = 0.1;
    if (change) change(recipe);
    inputs = open_inputs(recipe);
    model = build_model(inputs);
    samples = start_loader(inputs, 2)->next();
    input = hunt_input(inputs, model, samples, 3);
  }

  at::Tensor weight(const std::string& name) {
    for (auto& parameter : model.model->named_parameters()) {
      if (parameter.key() == name) return parameter.value().detach();
    }
    ADD_FAILURE() << "no " << name;
    return at::zeros({1});
  }
  void scale(const std::string& name, double factor) { weight(name).mul_(factor); }
  Hunt hunt() { return hunt_non_finite(model.model, input); }

  TinyRun run;
  RunInputs inputs;
  RunModel model;
  StepSamples samples;
  HuntInput input;
};

inline std::string report(const Hunt& hunt, const HuntInput& input) {
  std::string text;
  for (const std::string& line : hunt_lines(hunt, input, {})) text += line + "\n";
  return text;
}

}  // namespace lft::test
