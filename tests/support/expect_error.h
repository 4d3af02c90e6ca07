// EXPECT_LFT_ERROR(kind, piece, statement): the statement throws lft::Error of that kind, and its
// printed block contains `piece`.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "src/base/errors.h"

namespace lft::test {

/// The printed block of the error that `run` throws; a test failure (and "") when it throws none or
/// one of another kind.
inline std::string thrown_text(ErrorKind kind, const std::function<void()>& run, const char* file,
                               int line) {
  try {
    run();
  } catch (const Error& error) {
    const std::string text = format_error(error);
    if (error.kind() != kind)
      ADD_FAILURE_AT(file, line) << "error of kind " << static_cast<int>(error.kind()) << ": "
                                 << text;
    return text;
  }
  ADD_FAILURE_AT(file, line) << "no error was thrown";
  return "";
}

}  // namespace lft::test

#define EXPECT_LFT_ERROR(kind, piece, ...)                                                 \
  do {                                                                                     \
    const std::string lft_text = ::lft::test::thrown_text(                                 \
        kind, [&] { __VA_ARGS__; }, __FILE__, __LINE__);                                   \
    EXPECT_NE(lft_text.find(piece), std::string::npos) << "no \"" << (piece) << "\" in:\n" \
                                                       << lft_text;                        \
  } while (false)
