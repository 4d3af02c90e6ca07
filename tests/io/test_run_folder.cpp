// A run folder given instead of the adapter, model or incident folder inside it.
#include <gtest/gtest.h>

#include "src/io/run_folder.h"
#include "support/temp_dir.h"

namespace lft::run_folder_test {
using namespace lft::io;
namespace {

TEST(RunFolder, StandsForItsAdapterAndItsModel) {
  const test::TempDir dir;
  dir.write("lora/adapter/adapter_config.json", "{}");
  dir.write("whole/model/config.json", "{}");
  dir.write("some/parts/parts.safetensors", "");
  const std::string lora = dir.file("lora"), whole = dir.file("whole"), some = dir.file("some");
  EXPECT_EQ(adapter_folder(some), some + "/parts");
  EXPECT_EQ(adapter_folder(some + "/parts"), some + "/parts");
  EXPECT_EQ(adapter_folder(lora), lora + "/adapter");
  EXPECT_EQ(adapter_folder(lora + "/adapter"), lora + "/adapter");
  EXPECT_EQ(model_folder(whole), whole + "/model");
  EXPECT_EQ(model_folder(whole + "/model"), whole + "/model");
  EXPECT_EQ(model_folder(lora), lora);
  EXPECT_EQ(adapter_folder(whole), whole);
  EXPECT_EQ(adapter_folder(""), "");
  EXPECT_EQ(adapter_folder("nowhere"), "nowhere");
}

TEST(RunFolder, OneThatIsAnAdapterItselfIsTaken) {
  const test::TempDir dir;
  dir.write("adapter_config.json", "{}");
  dir.write("adapter/adapter_config.json", "{}");
  EXPECT_EQ(adapter_folder(dir.path()), dir.path());
}

TEST(RunFolder, StandsForItsLastIncident) {
  const test::TempDir dir;
  for (const char* name : {"incidents/step-9", "incidents/step-10", "incidents/.tmp-step-12"})
    dir.write(name + std::string("/incident.json"), "{}");
  dir.write("incidents/step-11/recipe.yaml", "");  // without the file that identifies it
  const std::string last = dir.file("incidents/step-10");
  EXPECT_EQ(incident_folder(dir.path()), last);
  EXPECT_EQ(incident_folder(dir.file("incidents")), last);
  EXPECT_EQ(incident_folder(dir.file("incidents/step-9")), dir.file("incidents/step-9"));
  EXPECT_EQ(incident_folder(dir.file("nowhere")), dir.file("nowhere"));
}

}  // namespace
}  // namespace lft::run_folder_test
