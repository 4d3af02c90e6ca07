// The base model of an adapter.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::cli {

/// `given`, or the directory that the adapter records; kUsage if there is none.
std::string base_of(const hf::AdapterDir& adapter, const std::string& given);

}  // namespace lft::cli
