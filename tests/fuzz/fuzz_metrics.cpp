// metrics.jsonl. A report leaves out the lines that it cannot read: it refuses none.
#include "src/io/files.h"
#include "src/report/report.h"
#include "support/temp_dir.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool metrics(std::string_view bytes) {
  static const test::TempDir folder;
  report::write_report(folder.file("report.html"),
                       {.title = "x", .metrics_text = std::string(bytes)});
  return io::read_file(folder.file("report.html")).find("could not be read") == std::string::npos;
}

}  // namespace lft::fuzz
