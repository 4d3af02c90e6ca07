// Small numeric helpers.
#pragma once
#include <vector>

namespace lft {

/// The mean of the middle two for an even count; 0 for no values.
double median(std::vector<double> values);

}  // namespace lft
