// Every adapter variant by the name a recipe gives it. A new variant: its file pair, and one line
// in registry.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/lora/inject.h"

namespace lft::lora {

std::vector<std::string> adapter_variants();
/// An uninitialised adapter for `layer`. Throws kUsage for an unknown variant, naming those there
/// are.
std::shared_ptr<layers::LinearAdapter> make_adapter(const layers::LinearImpl& layer,
                                                    const LoraOptions& options);

}  // namespace lft::lora
