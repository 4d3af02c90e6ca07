// Nothing of it is named by ProcessGroupGloo.hpp. See algorithm.h.
#pragma once
