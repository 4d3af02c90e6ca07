// Small numeric helpers.
#pragma once
#include <vector>

namespace lft {

/// The mean of the middle two of an even count; 0 of no values.
double median(std::vector<double> values);

}  // namespace lft
