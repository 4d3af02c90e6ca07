// The base model of an adapter that a command is given.
#pragma once
#include <string>

#include "src/hf/adapter/adapter.h"

namespace lft::cli {

/// `given`, or where that is empty the folder that the adapter records; kUsage where there is none.
std::string base_of(const hf::AdapterDir& adapter, const std::string& given);

}  // namespace lft::cli
