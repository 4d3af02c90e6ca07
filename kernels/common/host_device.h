// LFT_HOST_DEVICE: an inline function that both the host's compiler and a kernel can use.
#pragma once

#ifdef __CUDACC__
#define LFT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LFT_HOST_DEVICE inline __attribute__((always_inline))
#endif
