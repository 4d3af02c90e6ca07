#include "src/train/memory/moment.h"

#include <utility>

namespace lft::train {

void keep_larger(Moment& most, Moment moment) {
  if (moment.total() > most.total()) most = std::move(moment);
}

double trained_bytes(const std::vector<MemoryUnit>& units) {
  double sum = 0;
  for (const MemoryUnit& unit : units) sum += unit.gradients;
  return sum;
}

Moment worst_moment(const std::vector<MemoryUnit>& units, double pixels, double input_share,
                    double update) {
  const double all = trained_bytes(units);
  Moment most, now{.name = "forward pass", .activations = {}, .gradients = all, .pixels = pixels};
  for (const MemoryUnit& unit : units) {
    Moment moment = now;
    moment.name += ", " + unit.name;
    moment.temporaries = unit.forward;
    now.activations[unit.part] += unit.recomputed ? unit.input * input_share : unit.saved;
    moment.activations[unit.part] += unit.recomputed ? unit.input : unit.saved;
    keep_larger(most, std::move(moment));
  }
  now.name = "backward pass";
  now.pixels = 0;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    Moment first = now;
    first.name += ", " + unit->name;
    if (unit->recomputed) first.activations[unit->part] += unit->saved;
    Moment second = first;
    first.temporaries = unit->backward;
    second.activations[unit->part] -= unit->saved - unit->early;
    second.temporaries = unit->second;
    keep_larger(most, std::move(first));
    keep_larger(most, std::move(second));
    now.activations[unit->part] -= unit->recomputed ? unit->input * input_share : unit->saved;
  }
  keep_larger(
      most, {.name = "optimizer step", .activations = {}, .gradients = all, .temporaries = update});
  return most;
}

double pixel_bytes(const PassShape& shape) { return 4.0 * static_cast<double>(shape.values); }

Moment plain_moment(const RunSettings& settings, const std::vector<MemoryUnit>& units,
                    const PassShape& shape, double update) {
  const double input_share = offloads_activations(settings.recipe, settings.device) ? 0 : 1;
  return worst_moment(units, pixel_bytes(shape), input_share, update);
}

}  // namespace lft::train
