// Tries possible causes of a first loss above the uniform-guess loss, one at a time.
#pragma once
#include <string>
#include <vector>

#include "src/train/proof/first_loss.h"

namespace lft::train {

/// The loss of the probe's rows without the initial adapters, and under each other template:
/// "without lora.init_from it is 3.67, so the adapter is at fault". Rows of prepared data are not
/// encoded again. Then reports anomalies in the base's head, layers and other weights, which reads
/// all of them. Changes no state.
std::vector<std::string> try_suspects(family::Model& model, const Probe& probe,
                                      const RunInputs& inputs, const FirstLoss& first);

}  // namespace lft::train
