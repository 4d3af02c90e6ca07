// The bytes of a pass at its worst moment, from those of its units.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/train/inputs/run_settings.h"
#include "src/train/memory/memory_units.h"

namespace lft::train {

/// Bytes allocated at one moment of a pass, by part.
struct Moment {
  std::string name;
  std::map<std::string, double> activations;
  double gradients = 0, temporaries = 0, pixels = 0;
  double proof = 0;  // copies of a CUDA graph's outputs
  double spare = 0;  // optional part of the total
  double total() const {
    double sum = gradients + temporaries + pixels + proof;
    for (const auto& [part, bytes] : activations) sum += bytes;
    return sum;
  }
};
void keep_larger(Moment& most, Moment moment);

double trained_bytes(const std::vector<MemoryUnit>& units);
double pixel_bytes(const PassShape& shape);

/// Forward through the units, then backward, then an update, which temporarily needs `update`
/// bytes. The gradients are allocated throughout. `input_share`: of the inputs of recomputed
/// blocks, the fraction that stays on the device.
Moment worst_moment(const std::vector<MemoryUnit>& units, double pixels, double input_share,
                    double update);
/// The same for a step's pass of these settings without CUDA graphs.
Moment plain_moment(const RunSettings& settings, const std::vector<MemoryUnit>& units,
                    const PassShape& shape, double update);

}  // namespace lft::train
