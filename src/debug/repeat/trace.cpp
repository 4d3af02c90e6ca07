#include "src/debug/repeat/trace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <sstream>
#include <utility>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/ops/core/precision.h"
#include "src/base/signals.h"
#include "src/io/json.h"
#include "src/train/inputs/reference.h"
#include "src/train/machine/determinism.h"
#include "src/train/run/step_options.h"

namespace lft::debug {
namespace {

constexpr char kAgain[] = "run lft debug determinism again";

/// Bijective in `word` for a given hash, and in `hash` for a given word: a single changed word
/// always changes the result.
uint64_t mix(uint64_t hash, uint64_t word) {
  return std::rotl((hash ^ word) * 0x9e3779b97f4a7c15ull, 29);
}

uint64_t word_at(const char* from, uint64_t bytes = 8) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  for (char& letter : text) letter = static_cast<char>(std::tolower(letter));
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

train::StepOutcome traced_step(train::Run& run, Recorder& recorder, const TraceOptions& options,
                               const data::StepSamples& samples) {
  // Recorded when they are computed, and appended in order: after the loss.
  std::vector<std::pair<std::string, at::Tensor>> gradients;
  train::StepOptions step_options = train::run_step_options(run);
  step_options.gradients_ready = [&](int64_t step, train::Optimizer& optimizer) {
    if (options.gradients_ready) options.gradients_ready(step, optimizer);
    gradients.clear();
    const std::vector<at::Tensor> all = optimizer.gradients();
    for (size_t i = all.size(); i-- > 0;) {
      if (all[i].defined()) gradients.emplace_back(optimizer.slots()[i].param.name, all[i].clone());
    }
  };
  recorder.record_batch(samples);
  const train::StepOutcome outcome = [&] {
    const ObserveCalls observe(recorder);
    return train::train_step({run.model.model, run.optimizer, run.scaler, run.schedule},
                             step_options, samples, run.state);
  }();
  recorder.record_loss(outcome.loss);
  for (const auto& [name, gradient] : gradients) recorder.record("gradient", name, gradient);
  for (const train::Slot& slot : run.optimizer.slots())
    recorder.record("weight", slot.param.name, slot.param.tensor);
  for (const train::Slot& slot : run.optimizer.slots()) {
    for (const auto& [name, tensor] : train::moment_tensors(slot))
      recorder.record("moment", name, tensor);
  }
  return outcome;
}

}  // namespace

uint64_t hash_bytes(const void* data, uint64_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  std::array<uint64_t, 4> lanes = {1, 2, 3, 4};  // independent of each other, so that they overlap
  uint64_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    for (size_t lane = 0; lane < 4; ++lane)
      lanes[lane] = mix(lanes[lane], word_at(begin + at + 8 * lane));
  }
  uint64_t hash = mix(0, bytes);
  for (const uint64_t lane : lanes) hash = mix(hash, lane);
  for (; at + 8 <= bytes; at += 8) hash = mix(hash, word_at(begin + at));
  if (at < bytes) hash = mix(hash, word_at(begin + at, bytes - at));
  return mix(hash ^ (hash >> 32), 0);
}

uint64_t tensor_hash(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
  uint64_t hash = mix(static_cast<uint64_t>(values.scalar_type()),
                      hash_bytes(values.const_data_ptr(), values.nbytes()));
  for (const int64_t size : values.sizes()) hash = mix(hash, static_cast<uint64_t>(size));
  return hash;
}

std::string hash_text(uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

Trace trace_steps(const recipe::Recipe& recipe, const TraceOptions& options) {
  train::make_deterministic(recipe.train.deterministic);
  train::Run run = train::make_run(train::open_inputs(recipe));
  Trace trace;
  Recorder recorder(trace, options);
  for (const auto& parameter : run.model.model->named_parameters())
    recorder.record("weight", parameter.key(), parameter.value());
  const int64_t steps = std::min(options.steps, run.total_steps);
  train::find_step_references(run, run.model, steps);
  const std::unique_ptr<data::Loader> loader = train::start_loader(run, 0);
  while (recorder.step < steps && trace.ended.empty()) {
    if (requested_signal() != 0) throw Stopped();
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
  const auto add = [&](const io::Json& line) { text += io::json_text(line) + "\n"; };
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
      refuse(ErrorKind::kInput, "not a trace", here, error.what(), {}, kAgain);
    }
  }
  if (!whole) refuse(ErrorKind::kInput, "the trace is cut", where, {}, {}, kAgain);
  return trace;
}

}  // namespace lft::debug
