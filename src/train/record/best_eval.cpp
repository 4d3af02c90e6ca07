#include "src/train/record/best_eval.h"

#include <nlohmann/json.hpp>

#include "src/train/record/run_hash.h"

namespace lft::train {

bool BestEval::take(double new_loss, int64_t new_step) {
  if (new_step <= last_step) return false;
  last_step = new_step;
  ++since;
  if (!(new_loss < loss)) return false;
  loss = new_loss;
  step = new_step;
  since = 0;
  return true;
}

io::Json best_json(const BestEval& best) {
  return {{"loss_bits", bits_text(best.loss)},
          {"step", best.step},
          {"last_step", best.last_step},
          {"since", best.since}};
}

BestEval best_from(const io::Json& json) {
  return {.loss = bits_value(json.at("loss_bits").get<std::string>()),
          .step = json.at("step").get<int64_t>(),
          .last_step = json.at("last_step").get<int64_t>(),
          .since = json.at("since").get<int64_t>()};
}

}  // namespace lft::train
