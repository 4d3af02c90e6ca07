// What state.json of a checkpoint holds of a run beside its tensors. Each field is named once, in
// visit_state().
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::train {

struct SavedState {
  int64_t step = 0, scheduled = 0, skips_in_row = 0;
  std::string precision;  // fp32, bf16, fp16
  bool recovered = false;
  double lr_factor = 1;
  int64_t recompute = 0, split = 1;
  io::Json loss_scale;
  std::map<std::string, int64_t> adam_steps;  // by trainable: its own count of updates
  bool adapters_learn = false;
  io::Json norm_watch = io::Json::object();
  io::Json sampler;
  std::vector<std::string> skipped_samples;
  int64_t tokens = 0;
  std::string last_loss_bits, run_hash;
  uint64_t metrics_bytes = 0;
  std::string probe_loss_bits;
};

/// Calls field(name, member) for every member.
template <class State, class Field>
void visit_state(State& state, const Field& field) {
  field("step", state.step);
  field("scheduled", state.scheduled);
  field("skips_in_row", state.skips_in_row);
  field("precision", state.precision);
  field("recovered", state.recovered);
  field("lr_factor", state.lr_factor);
  field("recompute", state.recompute);
  field("split", state.split);
  field("loss_scale", state.loss_scale);
  field("adam_steps", state.adam_steps);
  field("adapters_learn", state.adapters_learn);
  field("norm_watch", state.norm_watch);
  field("sampler", state.sampler);
  field("skipped_samples", state.skipped_samples);
  field("tokens", state.tokens);
  field("last_loss_bits", state.last_loss_bits);
  field("run_hash", state.run_hash);
  field("metrics_bytes", state.metrics_bytes);
  field("probe_loss_bits", state.probe_loss_bits);
}

io::Json state_json(const SavedState& state);
/// Throws nlohmann's exception for a field that is missing or of another type; norm_watch, which
/// checkpoints of older builds lack, may be missing.
SavedState state_from(const io::Json& json);

}  // namespace lft::train
