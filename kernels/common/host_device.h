// LFT_HOST_DEVICE marks an inline function for both the host compiler and kernels.
#pragma once

#ifdef __CUDACC__
#define LFT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LFT_HOST_DEVICE inline __attribute__((always_inline))
#endif
