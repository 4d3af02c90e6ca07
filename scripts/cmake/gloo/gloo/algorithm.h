// Declarations for LibTorch's ProcessGroupGloo.hpp, which includes Gloo's headers though its wheel
// lacks them. Types are named here and nothing of them is made: what LibTorch compiled serves.
#pragma once
#include <gloo/transport/device.h>
