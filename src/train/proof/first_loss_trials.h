// A first loss above that of guessing: what could be at fault is tried, one at a time.
#pragma once
#include <string>
#include <vector>

#include "src/train/proof/first_loss.h"

namespace lft::train {

/// The loss of the probe's rows without the adapters that training starts from, and under each
/// other template: "without lora.init_from it is 3.67, so the adapter is at fault". Rows of
/// prepared data are not encoded again. Moves nothing.
std::vector<std::string> try_suspects(llava::Llava& model, const Probe& probe,
                                      const RunInputs& inputs, const FirstLoss& first);

}  // namespace lft::train
