#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
