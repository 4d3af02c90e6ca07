// The files of data.train: names that are no files.
#include <gtest/gtest.h>

#include "src/data/sources/data_files.h"
#include "support/expect_error.h"

namespace lft::data_files_test {
namespace {

TEST(DataFiles, ADataSetOfTheHubIsDownloadedByAnotherProgram) {
  EXPECT_LFT_ERROR(ErrorKind::kInput, "hf download --repo-type dataset HuggingFaceM4/ChartQA",
                   data::data_files("HuggingFaceM4/ChartQA"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "nowhere/rows.json", data::data_files("nowhere/rows.json"));
}

}  // namespace
}  // namespace lft::data_files_test
