// ProcessGroupGloo.hpp uses nothing from it. See algorithm.h.
#pragma once
