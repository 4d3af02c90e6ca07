#include <unistd.h>

#include "src/base/hash.h"
#include "src/checkpoint/manifest.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "tests/support/temp_dir.h"

namespace lft::fuzz {
using namespace lft::checkpoint;
namespace {

/// A step folder containing only MANIFEST.
struct Step {
  test::TempDir dir;
  MemoryFile manifest;
  Step() {
    if (symlink(manifest.path().c_str(), dir.file(kManifest).c_str()) != 0)
      throw std::runtime_error("cannot make a link");
  }
};

bool read(std::string_view bytes) {
  static Step step;
  step.manifest.set(bytes);
  expect(!reads(ErrorKind::kCheckpoint, [&] { verify_step(step.dir.path()); }),
         "a step without its files is refused");
  return reads(ErrorKind::kCheckpoint,
               [&] { expect(read_manifest(step.dir.path()).step >= 0, "a step from 0 on"); });
}

}  // namespace

bool manifest(std::string_view bytes) {
  const bool as_it_is = read(bytes);
  const bool sealed = read(std::string(bytes) + "sha256 " + sha256(bytes) + "\n");
  return as_it_is || sealed;
}

}  // namespace lft::fuzz
