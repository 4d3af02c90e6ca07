# Arrow C++ of the pyarrow wheel that scripts/setup installs into .deps/ (scripts/arrow.txt), as the
# target lft::arrow; only the module lft_arrow links it. Its libraries have the C++ ABI of
# LibTorch's wheel and share nothing else with it.
set(LFT_HAVE_ARROW OFF)
if(NOT LFT_ARROW STREQUAL "OFF")
  find_path(LFT_ARROW_ROOT NAMES include/arrow/api.h
            HINTS ${LFT_TORCH_ROOT}/../pyarrow
                  ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3.11/site-packages/pyarrow
            NO_DEFAULT_PATH)
  if(LFT_ARROW_ROOT)
    file(GLOB arrow_libraries ${LFT_ARROW_ROOT}/libarrow.so.* ${LFT_ARROW_ROOT}/libparquet.so.*)
    list(FILTER arrow_libraries EXCLUDE REGEX "so\\.[0-9]+\\.")  # the same under longer names
    list(LENGTH arrow_libraries found)
  endif()
  if(LFT_ARROW_ROOT AND found EQUAL 2)
    set(LFT_HAVE_ARROW ON)
    add_library(lft_arrow_libraries INTERFACE)
    add_library(lft::arrow ALIAS lft_arrow_libraries)
    target_include_directories(lft_arrow_libraries SYSTEM INTERFACE ${LFT_ARROW_ROOT}/include)
    target_link_libraries(lft_arrow_libraries INTERFACE ${arrow_libraries})
    message(STATUS "Arrow: ${LFT_ARROW_ROOT}")
  elseif(LFT_ARROW STREQUAL "ON")
    message(FATAL_ERROR "LFT_ARROW is ON, and no pyarrow wheel was found. Run scripts/setup, or "
                        "pass -DLFT_ARROW_ROOT=<site-packages>/pyarrow.")
  endif()
endif()
