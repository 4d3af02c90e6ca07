# LibTorch as the target lft::torch, from CMAKE_PREFIX_PATH or from the wheel that
# scripts/setup installs into .deps/.
# find_package(Torch) is not used: with a CUDA build it requires the CUDA toolkit even for CPU-only
# use. The binary links libtorch_cpu and libc10; src/train/machine/device.cpp loads
# libtorch_cuda at run time if there is a driver. That halves the start-up time.
find_path(LFT_TORCH_ROOT NAMES include/ATen/ATen.h
          HINTS ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH}
          PATHS ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3.11/site-packages/torch
                ${CMAKE_SOURCE_DIR}/.deps/torch
          PATH_SUFFIXES ../.. . torch NO_CMAKE_FIND_ROOT_PATH)
if(NOT LFT_TORCH_ROOT)
  message(FATAL_ERROR "LibTorch not found. Run scripts/setup, or pass "
                      "-DCMAKE_PREFIX_PATH=<libtorch>.")
endif()
get_filename_component(LFT_TORCH_ROOT ${LFT_TORCH_ROOT} REALPATH)
message(STATUS "LibTorch: ${LFT_TORCH_ROOT}")
add_library(lft_torch INTERFACE)
add_library(lft::torch ALIAS lft_torch)
target_include_directories(lft_torch SYSTEM INTERFACE ${LFT_TORCH_ROOT}/include
                           ${LFT_TORCH_ROOT}/include/torch/csrc/api/include)
# stdc++ first: libtorch_cpu.so exports its own std::filesystem.
target_link_libraries(lft_torch INTERFACE stdc++ ${LFT_TORCH_ROOT}/lib/libtorch_cpu.so
                      ${LFT_TORCH_ROOT}/lib/libc10.so)
# NDEBUG as in LibTorch's binaries: without it the header's RecordFunction::inputs() asserts a flag
# that they never set.
target_compile_definitions(lft_torch INTERFACE LFT_TORCH_LIB_DIR="${LFT_TORCH_ROOT}/lib" NDEBUG)
if(EXISTS ${LFT_TORCH_ROOT}/lib/libtorch_cuda.so)
  set(LFT_TORCH_HAS_CUDA ON)
endif()
# One precompiled header for every target that includes torch (14 s per file without, 5 s with).
add_library(lft_torch_pch OBJECT ${CMAKE_SOURCE_DIR}/scripts/cmake/pch.cpp)
target_link_libraries(lft_torch_pch PUBLIC lft::torch nlohmann_json::nlohmann_json)
target_precompile_headers(lft_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/scripts/cmake/pch.h)
