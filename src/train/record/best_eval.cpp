#include "src/train/record/best_eval.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/train/record/run_hash.h"

namespace lft::train {

bool BestEval::take(double new_cost, double new_loss, int64_t new_step, bool counts) {
  if (new_step <= last_step) return false;
  last_step = new_step;
  if (!std::isfinite(new_cost)) return false;
  if (counts) ++since;
  if (!(new_cost < cost)) return false;
  cost = new_cost;
  loss = new_loss;
  step = new_step;
  since = 0;
  return true;
}

io::Json best_json(const BestEval& best) {
  return {{"cost_bits", bits_text(best.cost)},
          {"loss_bits", bits_text(best.loss)},
          {"step", best.step},
          {"last_step", best.last_step},
          {"since", best.since}};
}

BestEval best_from(const io::Json& json) {
  return {.cost = bits_value(json.at("cost_bits").get<std::string>()),
          .loss = bits_value(json.at("loss_bits").get<std::string>()),
          .step = json.at("step").get<int64_t>(),
          .last_step = json.at("last_step").get<int64_t>(),
          .since = json.at("since").get<int64_t>()};
}

io::Json last_eval_json(const LastEval& last) {
  io::Json figures = io::Json::array();
  for (const auto& [name, value] : last.figures) figures.push_back({name, bits_text(value)});
  return {{"step", last.step},
          {"due", last.due},
          {"scheduled", last.scheduled},
          {"loss_bits", bits_text(last.loss)},
          {"figures", figures}};
}

LastEval last_eval_from(const io::Json& json) {
  LastEval last{.step = json.at("step").get<int64_t>(),
                .due = json.at("due").get<bool>(),
                .scheduled = json.at("scheduled").get<bool>(),
                .loss = bits_value(json.at("loss_bits").get<std::string>())};
  for (const io::Json& figure : json.at("figures"))
    last.figures.emplace_back(figure.at(0).get<std::string>(),
                              bits_value(figure.at(1).get<std::string>()));
  return last;
}

}  // namespace lft::train
