// Layers that an adapter's configuration names and that its file has no tensors of.
#pragma once
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// A line that names the linear layers of the model that target_modules takes and that the adapter
/// has no tensors of, where there are some. An expression that lft does not read takes none.
void warn_of_missing_layers(const AdapterDir& dir, const family::ModelConfig& config);

}  // namespace lft::hf
