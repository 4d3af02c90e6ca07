# lft_library(name [TORCH] [COLD] [DEPS lib...]): one static library of every .cpp below the current
# folder. TORCH: it includes torch headers (and uses the shared precompiled header). COLD: it has no
# loop whose speed is noticed, and is compiled faster.
function(lft_library name)
  cmake_parse_arguments(A "TORCH;COLD" "" "DEPS;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(pattern ${A_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  add_library(${name} STATIC ${sources})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  if(A_COLD)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  if(A_TORCH)
    target_link_libraries(${name} PUBLIC lft::torch)
    target_precompile_headers(${name} REUSE_FROM lft_torch_pch)
  endif()
endfunction()

# A program or module that includes torch headers uses the shared precompiled header. That was
# compiled with -fPIC, and GCC refuses it under the -fPIE of executables.
function(lft_precompiled_torch name)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  target_precompile_headers(${name} REUSE_FROM lft_torch_pch)
endfunction()

# lft_test(folder [TORCH] [FILTER cases] [LABELS l...] [DEPS lib...]): tests/<folder>/test_*.cpp
# as one program and one ctest.
function(lft_test folder)
  cmake_parse_arguments(A "TORCH" "FILTER" "LABELS;DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/test_*.cpp)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name test_${folder})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE LFT_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             LFT_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # Saves a quarter of the compile time; the code under test is built with -O2.
  target_compile_options(${name} PRIVATE -O1)
  if(A_TORCH)
    lft_precompiled_torch(${name})
  endif()
  # One ctest per program: starting LibTorch takes half a second, longer than most cases.
  add_test(NAME ${folder}
           COMMAND ${name} --gtest_brief=1 $<$<BOOL:${A_FILTER}>:--gtest_filter=${A_FILTER}>
           COMMAND_EXPAND_LISTS)
  set_tests_properties(${folder} PROPERTIES LABELS "cpu;${A_LABELS}" TIMEOUT 1800)
endfunction()
