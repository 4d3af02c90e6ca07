// Reports layers that match an adapter's configuration but have no tensors in its file.
#pragma once
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Warns about linear layers of the model that target_modules matches and that have no tensors in
/// the adapter. Expressions that lft cannot evaluate are ignored.
void warn_of_missing_layers(const AdapterDir& dir, const family::ModelConfig& config);

}  // namespace lft::hf
