#pragma once
#include "tests/kernels/emulation/cuda_bf16.h"
