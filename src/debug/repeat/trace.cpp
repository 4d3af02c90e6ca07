#include "src/debug/repeat/trace.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/ops/core/precision.h"
#include "src/debug/repeat/tensor_hash.h"
#include "src/io/json.h"
#include "src/train/machine/determinism.h"
#include "src/train/run/run.h"

namespace lft::debug {
namespace {

constexpr char kAgain[] = "run lft debug determinism again";

std::string shape_of(const at::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text + " " + c10::str(tensor.sizes());
}

class Recorder : public CallObserver {
 public:
  Recorder(Trace& trace, const TraceOptions& options) : trace_(trace), options_(options) {}

  void before(const std::string& path, const torch::nn::Module& module,
              const std::vector<at::Tensor>& inputs) override {
    record_all("input", path, inputs);
  }
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    if (options_.output_ready) options_.output_ready(step, path, outputs);
    record_all("output", path, outputs);
  }

  void record(const std::string& phase, const std::string& tensor, const at::Tensor& value,
              int64_t micro_batch = -1) {
    add(micro_batch, phase, "", tensor, shape_of(value), tensor_hash(value));
  }
  void record_batch(const data::StepSamples& samples) {
    for (size_t micro = 0; micro < samples.micro.size(); ++micro) {
      for (const data::Sample& sample : samples.micro[micro]) {
        const std::string of = " of sample " + sample.id;
        add_values(micro, "id" + of, sample.id);
        add_values(micro, "input_ids" + of, sample.input_ids);
        add_values(micro, "labels" + of, sample.labels);
        for (size_t i = 0; i < sample.images.size(); ++i)
          add_values(micro, "image " + std::to_string(i) + of, sample.images[i].chw);
      }
    }
  }
  void record_loss(double loss) {
    add(-1, "loss", "", "loss", "double []", hash_bytes(&loss, sizeof loss));
  }

  int64_t step = 0;

 private:
  void add(int64_t micro_batch, const std::string& phase, const std::string& module,
           const std::string& tensor, const std::string& shape, uint64_t hash) {
    trace_.records.push_back({step, micro_batch, phase, module, tensor, shape, hash_text(hash)});
  }
  template <class List>
  void add_values(size_t micro_batch, const std::string& tensor, const List& list) {
    add(static_cast<int64_t>(micro_batch), "batch", "", tensor,
        "[" + std::to_string(list.size()) + "]",
        hash_bytes(list.data(), list.size() * sizeof *list.data()));
  }
  void record_all(const std::string& phase, const std::string& path,
                  const std::vector<at::Tensor>& tensors) {
    const ops::DropoutPosition* position = ops::dropout_position();
    const int64_t micro_batch =
        position == nullptr ? -1 : static_cast<int64_t>(position->micro_batch);
    for (size_t i = 0; i < tensors.size(); ++i) {
      add(micro_batch, phase, path, std::to_string(i), shape_of(tensors[i]),
          tensor_hash(tensors[i]));
    }
  }

  Trace& trace_;
  const TraceOptions& options_;
};

/// Gradients are recorded when they are there and appended when their turn has come: after the
/// loss.
struct Gradients {
  std::vector<std::pair<std::string, at::Tensor>> list;
  void take(const train::Optimizer& optimizer) {
    list.clear();
    const std::vector<at::Tensor> gradients = optimizer.gradients();
    for (size_t i = gradients.size(); i-- > 0;) {
      if (gradients[i].defined())
        list.emplace_back(optimizer.slots()[i].param.name, gradients[i].clone());
    }
  }
};

train::StepOutcome traced_step(train::Run& run, Recorder& recorder, const TraceOptions& options,
                               const data::StepSamples& samples) {
  Gradients gradients;
  const train::StepOptions step_options{
      .clip_grad_norm = run.inputs.recipe.optim.clip_grad_norm,
      .seed = static_cast<uint64_t>(run.inputs.recipe.train.seed),
      .offload_activations = train::offloads_activations(run.inputs.recipe, run.inputs.device),
      .gradients_ready = [&](int64_t step, train::Optimizer& optimizer) {
        if (options.gradients_ready) options.gradients_ready(step, optimizer);
        gradients.take(optimizer);
      }};
  recorder.record_batch(samples);
  const train::StepOutcome outcome = [&] {
    const ObserveCalls observe(recorder);
    return train::train_step(run.model.model, run.optimizer, run.scaler, run.schedule, step_options,
                             samples, run.state);
  }();
  recorder.record_loss(outcome.loss);
  for (const auto& [name, gradient] : gradients.list) recorder.record("gradient", name, gradient);
  for (const train::Slot& slot : run.optimizer.slots())
    recorder.record("weight", slot.param.name, slot.param.tensor);
  for (const train::Slot& slot : run.optimizer.slots()) {
    for (const auto& [name, tensor] : train::moment_tensors(slot))
      recorder.record("moment", name, tensor);
  }
  return outcome;
}

}  // namespace

Trace trace_steps(const recipe::Recipe& recipe, const TraceOptions& options) {
  train::make_deterministic(recipe.train.deterministic);
  train::Run run = train::make_run(train::open_inputs(recipe));
  Trace trace;
  Recorder recorder(trace, options);
  for (const auto& parameter : run.model.model->named_parameters())
    recorder.record("weight", parameter.key(), parameter.value());
  const std::unique_ptr<data::Loader> loader = train::start_loader(run.inputs, 0);
  const int64_t steps = std::min(options.steps, run.inputs.total_steps);
  while (recorder.step < steps && trace.ended.empty()) {
    data::StepSamples samples = loader->next();
    ++recorder.step;
    if (options.samples_ready) options.samples_ready(recorder.step, samples);
    const train::StepOutcome outcome = traced_step(run, recorder, options, samples);
    if (outcome.result == train::StepResult::kNonFinite)
      trace.ended = "step " + std::to_string(recorder.step) + ": " + outcome.reason;
  }
  return trace;
}

std::string trace_text(const Trace& trace) {
  std::string text;
  const auto add = [&](const io::Json& line) {
    text += line.dump(-1, ' ', false, io::Json::error_handler_t::replace) + "\n";
  };
  for (const TraceRecord& r : trace.records)
    add({r.step, r.micro_batch, r.phase, r.module, r.tensor, r.shape, r.hash});
  add(trace.ended);
  return text;
}

Trace parse_trace(const std::string& text, const std::string& where) {
  Trace trace;
  std::istringstream lines(text);
  int64_t number = 0;
  bool whole = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string here = where + ":" + std::to_string(++number);
    const io::Json json = io::parse_json(line, here);
    whole = json.is_string();
    try {
      if (whole) {
        trace.ended = json.get<std::string>();
      } else {
        trace.records.push_back({json.at(0).get<int64_t>(), json.at(1).get<int64_t>(),
                                 json.at(2).get<std::string>(), json.at(3).get<std::string>(),
                                 json.at(4).get<std::string>(), json.at(5).get<std::string>(),
                                 json.at(6).get<std::string>()});
      }
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorKind::kInput, {.what = "not a trace",
                                      .where = here,
                                      .found = error.what(),
                                      .expected = {},
                                      .next = kAgain});
    }
  }
  if (!whole)
    throw Error(
        ErrorKind::kInput,
        {.what = "the trace is cut", .where = where, .found = {}, .expected = {}, .next = kAgain});
  return trace;
}

}  // namespace lft::debug
