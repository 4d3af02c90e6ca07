# CUDA kernels if nvcc is present (sm_75, sm_80, sm_90 and PTX for later architectures);
# otherwise skipped with one line of notice.
set(LFT_HAVE_CUDA OFF)
if(NOT LFT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not support C++20 for nvcc 13
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(LFT_HAVE_CUDA ON)
  elseif(LFT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LFT_CUDA=ON, but no nvcc was found")
  else()
    message(STATUS "lft: nvcc not found, the CUDA kernels are left out "
                   "(this build trains on the CPU)")
  endif()
endif()
