// Whether two samples show the same images.
#pragma once
#include "src/data/store/sample.h"

namespace lft::data {

bool same_images(const Sample& a, const Sample& b);

}  // namespace lft::data
