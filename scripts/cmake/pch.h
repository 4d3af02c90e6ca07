#include <ATen/ATen.h>

#include <cstdlib>

// The lookup of a missing key in a constant object ends the program also under NDEBUG.
#define JSON_ASSERT(condition) ((condition) ? void() : std::abort())
#include <nlohmann/json.hpp>
