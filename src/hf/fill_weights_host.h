// Fills weights in host memory directly from the files.
#pragma once
#include <memory>

#include "src/hf/piece_filler.h"

namespace lft::hf {

std::unique_ptr<PieceFiller> host_filler(const FillPlan& plan);

}  // namespace lft::hf
